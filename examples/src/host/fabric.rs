//! Which of the two fabrics an application of this environment gets, `efa-direct` or `efa`, and why.

use efa_core::fabric::{BadChoice, Choice, FABRIC, Fabric, Reason};

use super::software::{folders, mapped};
use super::view::View;

/// The option that was proposed to switch NVSHMEM to `efa`; released builds do not have it.
pub(super) use efa_core::fabric::DISABLE_DIRECT;

/// The first libfabric that offers `efa-direct`.
pub(super) const DIRECT_SINCE: &str = "2.1";

/// What is in force, in words, and what it follows from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct InForce {
    /// `efa-direct`, `efa`, or that the application chooses.
    pub fabric: &'static str,
    /// Why.
    pub why: String,
}

/// Whether the environment has NVSHMEM use EFA through libfabric.
pub(super) fn nvshmem_on_efa(view: &View) -> bool {
    view.variable("NVSHMEM_REMOTE_TRANSPORT").is_some_and(|name| name.eq_ignore_ascii_case("libfabric"))
        && view.variable("NVSHMEM_LIBFABRIC_PROVIDER").is_some_and(|name| name.eq_ignore_ascii_case("efa"))
}

/// NVSHMEM's transport for libfabric, where the loader would find it.
pub(super) fn transport(view: &View) -> Option<String> {
    let name = "nvshmem_transport_libfabric.so";
    let home = view.variable("NVSHMEM_HOME").map(|home| format!("{home}/lib"));
    let found = home.into_iter().chain(folders(view)).flat_map(|folder| {
        let named = view.names(&folder).into_iter().filter(move |file| file.starts_with(name));
        named.map(move |file| format!("{folder}/{file}"))
    });
    mapped(view, name).into_iter().chain(found).find(|path| view.has(path))
}

/// Whether a build knows the switch, by its own name in it; `None` where no build is found.
pub(super) fn knows_switch(view: &View) -> Option<bool> {
    let bytes = view.bytes(&transport(view)?)?;
    let name = b"DISABLE_LIBFABRIC_EFA_DIRECT";
    Some(bytes.windows(name.len()).any(|window| window == name))
}

/// What the switch says, which is a boolean: whether it is to be `efa`.
pub(super) fn switch(view: &View) -> Result<Option<Choice>, BadChoice> {
    let said = view.variable(DISABLE_DIRECT);
    said.map(|text| Choice::from_variables(None, Some(text.as_bytes()))).transpose()
}

/// What programs on efa-core take in this environment, unless they say so themselves.
pub(super) fn own(view: &View) -> Result<Choice, BadChoice> {
    let [fabric, disable] = [FABRIC, DISABLE_DIRECT].map(|name| view.environment.get(name).map(String::as_bytes));
    Choice::from_variables(fabric, disable)
}

/// The fabric in force: one function, so that what else chooses a fabric has one place to be asked.
pub(super) fn in_force(view: &View, libfabric: Option<&super::version::Version>) -> InForce {
    let is = |fabric, why: String| InForce { fabric, why };
    let Some(libfabric) = libfabric else {
        return is("unknown", "no libfabric is found here".to_owned());
    };
    if libfabric.is_before(DIRECT_SINCE) {
        return is("efa", format!("libfabric {libfabric} has no efa-direct, which came with {DIRECT_SINCE}"));
    }
    if !nvshmem_on_efa(view) {
        return is(
            "the application's choice",
            format!("libfabric {libfabric} offers both: efa-direct first, unless hints need what it lacks or name efa"),
        );
    }
    // As NVSHMEM reads it, which is not always as it is meant.
    let disabled = switch(view).map(|choice| {
        choice.is_some_and(|choice| {
            let unlike = matches!(choice.reason(), Reason::DisableDirect { unlike_nvshmem: true });
            (choice.fabric() == Fabric::Efa) != unlike
        })
    });
    match (disabled, knows_switch(view)) {
        (Ok(true), Some(true)) => is("efa", format!("{DISABLE_DIRECT} is true, and this NVSHMEM knows it")),
        (Ok(true), None) => {
            is("unknown", format!("{DISABLE_DIRECT} is true, and no NVSHMEM is found that could know it"))
        }
        (Err(error), _) => is("unknown", error.to_string()),
        (Ok(_), _) => is("efa-direct", format!("NVSHMEM takes it where libfabric ({libfabric}) offers it")),
    }
}
