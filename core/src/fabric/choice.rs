//! Which fabric: what was asked for, by whom, and which it comes to.

use core::fmt;

/// A fabric.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Fabric {
    /// The device as it is: [`EfaDirect`](super::EfaDirect).
    #[default]
    EfaDirect,
    /// Messages of any size and from any buffer, in order: [`Efa`](super::Efa).
    Efa,
}

/// What was chosen, and why: `Display` is a sentence that says both.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Choice {
    fabric: Fabric,
    reason: Reason,
}

/// Why a fabric was chosen.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// The application said so.
    Application,
    /// [`FABRIC`] said so.
    Fabric,
    /// [`DISABLE_DIRECT`] said so.
    DisableDirect {
        /// Whether NVSHMEM itself takes what it says for the contrary: it knows no `off`.
        unlike_nvshmem: bool,
    },
    /// Nobody said anything.
    Default,
}

/// The variable of the environment that names a fabric: `efa` or `efa-direct`.
pub const FABRIC: &str = "EFA_FABRIC";

/// NVSHMEM's variable of the environment: true is `efa`, false, the default, `efa-direct`.
///
/// It was proposed for NVSHMEM and not merged: its builds up to 3.8.0 do not read it.
pub const DISABLE_DIRECT: &str = "NVSHMEM_DISABLE_LIBFABRIC_EFA_DIRECT";

/// Bytes of a variable that an error shows.
const SHOWN: usize = 32;

/// A variable says something that is no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadChoice {
    variable: &'static str,
    expected: &'static str,
    /// How it begins.
    shown: [u8; SHOWN],
    len: usize,
}

impl Choice {
    /// The application's own, which wins over all else.
    pub const fn of(fabric: Fabric) -> Self {
        Self { fabric, reason: Reason::Application }
    }

    /// By the two variables, [`FABRIC`] and [`DISABLE_DIRECT`], each as it is if it is set: the first wins.
    ///
    /// Both are read even so: what makes no sense is an error, however little it would have counted. Of NVSHMEM's booleans
    /// these are taken in any case: 0, n, no, f, false, off, and 1, y, yes, t, true, on.
    ///
    /// ```
    /// use efa_core::fabric::{Choice, Fabric};
    ///
    /// let choice = Choice::from_variables(None, Some(b"1")).unwrap();
    /// assert_eq!(choice.fabric(), Fabric::Efa);
    /// assert_eq!(choice.to_string(), "efa, since NVSHMEM_DISABLE_LIBFABRIC_EFA_DIRECT is true");
    /// let error = Choice::from_variables(None, Some(b"maybe")).unwrap_err();
    /// assert!(error.to_string().contains("`maybe`"));
    /// ```
    ///
    /// # Errors
    /// [`BadChoice`], which shows what it says.
    pub fn from_variables(fabric: Option<&[u8]>, disable_direct: Option<&[u8]>) -> Result<Self, BadChoice> {
        let named =
            fabric.map(|text| named(text).ok_or(BadChoice::new(FABRIC, "efa or efa-direct", text))).transpose()?;
        let disabled = disable_direct
            .map(|text| {
                boolean(text).ok_or(BadChoice::new(
                    DISABLE_DIRECT,
                    "0, n, no, f, false, off, 1, y, yes, t, true or on",
                    text,
                ))
            })
            .transpose()?;
        Ok(match (named, disabled) {
            (Some(fabric), _) => Self { fabric, reason: Reason::Fabric },
            (None, Some(disabled)) => {
                let fabric = if disabled { Fabric::Efa } else { Fabric::EfaDirect };
                // NVSHMEM looks at the first letter: 0, n and f are false, all else is true.
                let first = disable_direct.and_then(<[u8]>::first).map(u8::to_ascii_lowercase);
                let unlike_nvshmem = disabled == matches!(first, Some(b'0' | b'n' | b'f'));
                Self { fabric, reason: Reason::DisableDirect { unlike_nvshmem } }
            }
            (None, None) => Self { fabric: Fabric::default(), reason: Reason::Default },
        })
    }

    /// Which fabric.
    pub const fn fabric(&self) -> Fabric {
        self.fabric
    }

    /// Why.
    pub const fn reason(&self) -> Reason {
        self.reason
    }
}

fn named(text: &[u8]) -> Option<Fabric> {
    match text {
        b"efa" => Some(Fabric::Efa),
        b"efa-direct" => Some(Fabric::EfaDirect),
        _ => None,
    }
}

fn boolean(text: &[u8]) -> Option<bool> {
    let is = |forms: &[&str]| forms.iter().any(|form| text.eq_ignore_ascii_case(form.as_bytes()));
    if is(&["0", "n", "no", "f", "false", "off"]) {
        Some(false)
    } else if is(&["1", "y", "yes", "t", "true", "on"]) {
        Some(true)
    } else {
        None
    }
}

impl BadChoice {
    fn new(variable: &'static str, expected: &'static str, text: &[u8]) -> Self {
        let mut shown = [0; SHOWN];
        shown.iter_mut().zip(text).for_each(|(to, from)| *to = *from);
        Self { variable, expected, shown, len: text.len() }
    }

    /// Which variable.
    pub const fn variable(&self) -> &'static str {
        self.variable
    }
}

impl fmt::Display for Fabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::EfaDirect => "efa-direct",
            Self::Efa => "efa",
        })
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { fabric, reason } = self;
        match reason {
            Reason::Application => write!(f, "{fabric}, since the application chose it"),
            Reason::Fabric => write!(f, "{fabric}, since {FABRIC} says so"),
            Reason::DisableDirect { unlike_nvshmem } => {
                let disabled = *fabric == Fabric::Efa;
                write!(f, "{fabric}, since {DISABLE_DIRECT} is {disabled}")?;
                if *unlike_nvshmem {
                    write!(f, " (NVSHMEM itself would take it for {}: say 0 or 1)", !disabled)?;
                }
                Ok(())
            }
            Reason::Default => write!(f, "{fabric}, which is the default"),
        }
    }
}

impl fmt::Display for BadChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { variable, expected, shown, len } = self;
        let shown = shown.get(..(*len).min(SHOWN)).unwrap_or_default();
        let more = if *len > SHOWN { ".." } else { "" };
        write!(f, "{variable} is `{}{more}`: say {expected}, or leave it unset", shown.escape_ascii())
    }
}

impl core::error::Error for BadChoice {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_application_wins_over_the_fabrics_name_and_that_over_nvshmems_switch() {
        let chosen = |fabric: Option<&str>, disable: Option<&str>| {
            let choice = Choice::from_variables(fabric.map(str::as_bytes), disable.map(str::as_bytes)).unwrap();
            (choice.fabric(), choice.to_string())
        };
        assert_eq!(chosen(None, None), (Fabric::EfaDirect, "efa-direct, which is the default".into()));
        assert_eq!(chosen(Some("efa"), Some("0")), (Fabric::Efa, "efa, since EFA_FABRIC says so".into()));
        assert_eq!(chosen(Some("efa-direct"), Some("1")).0, Fabric::EfaDirect);
        for no in ["0", "n", "No", "FALSE", "f"] {
            let says = "efa-direct, since NVSHMEM_DISABLE_LIBFABRIC_EFA_DIRECT is false".to_owned();
            assert_eq!(chosen(None, Some(no)), (Fabric::EfaDirect, says), "{no}");
        }
        for yes in ["1", "y", "Yes", "TRUE", "t", "on"] {
            assert_eq!(chosen(None, Some(yes)).0, Fabric::Efa, "{yes}");
        }
        let (fabric, says) = chosen(None, Some("Off"));
        assert!(
            fabric == Fabric::EfaDirect && says.ends_with("(NVSHMEM itself would take it for true: say 0 or 1)"),
            "{says}"
        );
        assert_eq!(Choice::of(Fabric::Efa).to_string(), "efa, since the application chose it");
    }

    #[test]
    fn any_other_text_is_an_error_that_shows_it() {
        for text in ["", "2", "maybe", "truely", "\u{1b}[2J"] {
            let error = Choice::from_variables(Some(b"efa"), Some(text.as_bytes())).unwrap_err().to_string();
            let shown = text.escape_default().to_string().replace("\\u{1b}", "\\x1b");
            assert!(error.contains(DISABLE_DIRECT) && error.contains(&format!("`{shown}`")), "{error}");
        }
        let long = Choice::from_variables(Some(&[b'e'; 1000]), None).unwrap_err();
        assert_eq!(long.variable(), FABRIC);
        assert!(long.to_string().contains(&format!("`{}..`", "e".repeat(32))), "{long}");
        let shown = Choice::from_variables(Some(&[b'e'; 32]), None).unwrap_err();
        assert!(shown.to_string().contains(&format!("`{}`", "e".repeat(32))), "{shown}");
        assert!(Choice::from_variables(Some(b"EFA"), None).is_err());
    }
}
