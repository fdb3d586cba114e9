//! What a user's environment says of the allocator of a framework, and what that means for registration (H24).

#![forbid(unsafe_code)]

use core::fmt;

/// The variables that PyTorch reads: the newer name, and the one before.
const VARIABLES: [&str; 2] = ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"];

/// A setting of an allocator that matters here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AllocatorSetting {
    /// The variable that says so.
    pub variable: &'static str,
    /// The setting, as it is written.
    pub setting: String,
    /// What it means.
    pub meaning: &'static str,
}

impl fmt::Display for AllocatorSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} has `{}`: {}", self.variable, self.setting, self.meaning)
    }
}

/// What this process' environment says. Empty: nothing that matters.
pub fn allocator_settings() -> Vec<AllocatorSetting> {
    let values = VARIABLES.map(|variable| (variable, std::env::var(variable).unwrap_or_default()));
    values.iter().flat_map(|(variable, value)| settings(variable, value)).collect()
}

fn settings(variable: &'static str, value: &str) -> Vec<AllocatorSetting> {
    let meaning = |name: &str, value: &str| match (name, value) {
        ("expandable_segments", "true" | "1") => Some(
            "virtual memory, which is registered as a dma-buf; what registers it by its address, or sets SYNC_MEMOPS on it, fails",
        ),
        ("backend", "cudamallocasync") => {
            Some("memory of pools, which drivers before CUDA 13.4 do not export: take the backend `native`")
        }
        _ => None,
    };
    let found = value.split(',').filter_map(|setting| {
        let (name, value) = setting.split_once(':')?;
        let meaning = meaning(&name.trim().to_lowercase(), &value.trim().to_lowercase())?;
        Some(AllocatorSetting { variable, setting: setting.trim().to_owned(), meaning })
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h24_settings_of_the_allocator_that_matter_are_found_by_either_name_and_explained() {
        let found = settings(VARIABLES[0], "max_split_size_mb:128, Expandable_Segments:True,backend:cudaMallocAsync");
        let text: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), 2, "{text:?}");
        assert!(text[0].contains("PYTORCH_ALLOC_CONF has `Expandable_Segments:True`") && text[0].contains("dma-buf"));
        assert!(text[1].contains("`native`"), "{text:?}");
        for nothing in ["", "expandable_segments:False", "garbage", ":,:", "backend:native"] {
            assert_eq!(settings(VARIABLES[1], nothing), [], "{nothing}");
        }
    }
}
