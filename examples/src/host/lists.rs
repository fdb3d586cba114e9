//! Lists with a date: instance types, operating systems, versions. What they do not have is unknown.

use std::sync::LazyLock;

use super::version::Version;

/// A row of `lists/instances.csv`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InstanceType {
    /// The type, or a pattern of types with `*`.
    pub pattern: &'static str,
    /// The generation of Nitro.
    pub nitro: &'static str,
    /// Whether its EFA has RDMA read.
    pub read: bool,
    /// Whether it has RDMA write.
    pub write: bool,
    /// EFAs at most, where the list says so.
    pub efas: Option<usize>,
    /// The oldest installer that GPUs of this type need.
    pub installer: Option<&'static str>,
}

/// A row of `lists/systems.csv`.
#[derive(Clone, Debug)]
pub(super) struct System {
    /// `ID` of os-release.
    pub id: &'static str,
    /// `VERSION_ID`, or the beginning of it before a point.
    pub version: &'static str,
    /// The architecture, `*` for any.
    pub architecture: &'static str,
    /// The last installer that supports it, if support has ended.
    pub last: Option<&'static str>,
}

/// A row of `lists/software.csv`.
#[derive(Clone, Debug)]
pub(super) struct Minimum {
    /// The software.
    pub name: &'static str,
    /// The oldest version that AWS's documentation names.
    pub version: &'static str,
    /// Why it matters.
    pub why: &'static str,
}

const INSTANCES: &str = include_str!("lists/instances.csv");
const SYSTEMS: &str = include_str!("lists/systems.csv");
const SOFTWARE: &str = include_str!("lists/software.csv");

/// The day of a list, which is on its first line.
pub(super) fn date(list: &'static str) -> &'static str {
    list.lines().next().and_then(|line| line.split_whitespace().nth(1)).unwrap_or("no date")
}

/// The days of the lists: of instance types, of systems, of software.
pub(super) fn dates() -> [(&'static str, &'static str); 3] {
    [("instance types", date(INSTANCES)), ("systems", date(SYSTEMS)), ("software", date(SOFTWARE))]
}

/// Cells of rows, without comments and without the head.
fn rows(list: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    let lines = list.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines.skip(1).map(|line| line.split(',').map(str::trim).collect())
}

fn some(cell: &'static str) -> Option<&'static str> {
    (!cell.is_empty()).then_some(cell)
}

static INSTANCE_TYPES: LazyLock<Vec<InstanceType>> = LazyLock::new(|| {
    let row = |cells: Vec<&'static str>| match cells[..] {
        [pattern, nitro, read, write, efas, installer] => InstanceType {
            pattern,
            nitro,
            read: read == "yes",
            write: write == "yes",
            efas: efas.parse().ok(),
            installer: some(installer),
        },
        _ => panic!("lists/instances.csv: {cells:?}"),
    };
    rows(INSTANCES).map(row).collect()
});

/// What the list has for an instance type: its own row, or the first pattern that it fits.
pub(super) fn instance(name: &str) -> Option<&'static InstanceType> {
    INSTANCE_TYPES.iter().find(|row| fits(row.pattern, name))
}

/// Whether a name fits a pattern, in which `*` stands for any characters but a point, and at its end for all.
fn fits(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((before, "")) => name.starts_with(before),
        Some((before, after)) => name.strip_prefix(before).is_some_and(|rest| {
            (0..=rest.find('.').unwrap_or(rest.len())).any(|at| rest.is_char_boundary(at) && fits(after, &rest[at..]))
        }),
    }
}

/// What the list has for an operating system.
pub(super) fn system(id: &str, version: &str, architecture: &str) -> Option<System> {
    let row = |cells: Vec<&'static str>| match cells[..] {
        [id, version, architecture, last] => System { id, version, architecture, last: some(last) },
        _ => panic!("lists/systems.csv: {cells:?}"),
    };
    rows(SYSTEMS).map(row).find(|row| {
        let is = version == row.version || version.strip_prefix(row.version).is_some_and(|rest| rest.starts_with('.'));
        row.id == id && is && (row.architecture == "*" || row.architecture == architecture)
    })
}

/// What the list has for a piece of software.
pub(super) fn minimum(name: &str) -> Option<Minimum> {
    let row = |cells: Vec<&'static str>| match cells[..] {
        [name, version, why] => Minimum { name, version, why },
        _ => panic!("lists/software.csv: {cells:?}"),
    };
    rows(SOFTWARE).map(row).find(|row| row.name == name)
}

/// Whether a version is older than the list's.
pub(super) fn is_too_old(minimum: &Minimum, version: &Version) -> bool {
    version.is_before(minimum.version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_found_by_its_own_row_before_its_family_and_an_unknown_one_is_not() {
        let of = |name: &str| instance(name).map(|row| (row.read, row.write, row.efas));
        assert_eq!(of("p5.48xlarge"), Some((true, true, Some(32))));
        assert_eq!(of("p4d.24xlarge"), Some((true, false, Some(4))));
        assert_eq!(of("c7gn.16xlarge"), Some((true, false, Some(1))));
        assert_eq!(of("c6in.32xlarge"), Some((true, true, Some(2))));
        assert_eq!(of("m6i.32xlarge"), Some((true, true, None)));
        assert_eq!(of("c5n.18xlarge"), Some((false, false, None)));
        assert_eq!((of("p9.48xlarge"), of("t3.micro"), of("")), (None, None, None));
    }

    #[test]
    fn each_list_has_a_date_and_a_source_and_rows_that_can_be_read() {
        for list in [INSTANCES, SYSTEMS, SOFTWARE] {
            let day: Vec<&str> = date(list).split('-').collect();
            assert!(matches!(day[..], [year, month, day] if year.len() == 4 && month.len() == 2 && day.len() == 2));
            assert!(list.lines().any(|line| line.starts_with("# Source: ")), "{list}");
        }
        assert!(INSTANCE_TYPES.len() > 60);
        assert!(system("ubuntu", "24.04", "x86_64").is_some_and(|row| row.last.is_none()));
        assert!(system("amzn", "2", "aarch64").is_some_and(|row| row.last == Some("1.49.0")));
        assert!(system("amzn", "2023.5", "x86_64").is_some() && system("amzn", "20", "x86_64").is_none());
        assert!(minimum("libfabric").is_some() && minimum("NCCL").is_none());
    }

    #[test]
    fn a_pattern_takes_what_it_says_and_no_more() {
        assert!(fits("*6a.*", "hpc6a.48xlarge") && fits("*6a.*", "c6a.48xlarge") && !fits("*6a.*", "c6an.48xlarge"));
        assert!(
            fits("u7i*", "u7in-16tb.224xlarge") && fits("p5.48xlarge", "p5.48xlarge") && !fits("p5.*", "p5e.48xlarge")
        );
    }
}
