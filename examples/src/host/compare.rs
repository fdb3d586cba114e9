//! Two hosts compared: what must be the same for EFA, and what should be.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::Host;
use super::doctor::{Outcome, Severity, Verdict};

/// What a host says of itself to another, and in a report.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    /// Its name.
    pub name: String,
    /// Its kernel.
    pub kernel: String,
    /// Its architecture.
    pub architecture: String,
    /// Its operating system.
    pub system: Option<String>,
    /// Its instance type.
    pub instance_type: Option<String>,
    /// Its availability zone's identifier.
    pub zone: Option<String>,
    /// Its placement group.
    pub placement_group: Option<String>,
    /// Its virtual networks.
    pub networks: BTreeSet<String>,
    /// Its subnets.
    pub subnets: BTreeSet<String>,
    /// Its security groups.
    pub security_groups: BTreeSet<String>,
    /// Its EFAs.
    pub efas: usize,
    /// Their PCI device numbers: 0xefa0 is the first generation.
    pub devices: BTreeSet<String>,
    /// What all that were opened can do.
    pub capabilities: BTreeSet<String>,
    /// Their addresses.
    pub gids: Vec<String>,
    /// Versions by name: of the driver, the libraries, what is built on them.
    pub versions: Vec<(String, String)>,
}

impl Facts {
    /// Of a host.
    pub fn of(host: &Host) -> Self {
        let opened: Vec<_> =
            host.view.verbs.answer().into_iter().flatten().filter(|device| device.error.is_none()).collect();
        let of = |device: &super::view::VerbsDevice| device.capabilities.iter().cloned().collect::<BTreeSet<_>>();
        let common = opened.iter().map(|device| of(device)).reduce(|a, b| &a & &b);
        Self {
            name: host.view.machine.name.clone(),
            kernel: host.view.machine.kernel.clone(),
            architecture: host.view.machine.architecture.clone(),
            system: host.software.system.as_ref().map(|(id, version)| format!("{id} {version}")),
            instance_type: host.instance.kind.clone(),
            zone: host.instance.zone.clone(),
            placement_group: host.instance.group.clone(),
            networks: host.instance.networks.clone(),
            subnets: host.instance.subnets.clone(),
            security_groups: host.instance.security.clone(),
            efas: host.bus.efas.len(),
            devices: host.bus.efas.iter().map(|function| format!("{:#06x}", function.device)).collect(),
            capabilities: common.unwrap_or_default(),
            gids: host.bus.efa_devices().filter_map(|device| device.gid.clone()).collect(),
            versions: versions(host),
        }
    }

    /// In a line.
    pub fn line(&self) -> String {
        let known = |text: &Option<String>, else_: &str| text.clone().unwrap_or_else(|| else_.to_owned());
        format!(
            "{}, {}, Linux {} on {}, {} EFA{}",
            known(&self.instance_type, "no instance of EC2's that says so"),
            known(&self.system, "an unknown system"),
            self.kernel,
            self.architecture,
            self.efas,
            if self.efas == 1 { "" } else { "s" }
        )
    }

    fn version(&self, name: &str) -> Option<&str> {
        self.versions.iter().find(|(known, _)| known == name).map(|(_, version)| version.as_str())
    }
}

/// All versions of a host by name.
pub(super) fn versions(host: &Host) -> Vec<(String, String)> {
    let software = &host.software;
    let mut found = Vec::new();
    let mut put = |name: &str, version: Option<String>| found.extend(version.map(|version| (name.to_owned(), version)));
    put("EFA installer", software.installer.as_ref().map(ToString::to_string));
    put("EFA driver", software.driver.as_ref().map(ToString::to_string));
    for (name, library) in [("libibverbs", &software.libibverbs), ("libefa", &software.libefa)] {
        let release = library.as_ref().and_then(|library| library.release.as_ref());
        put(name, release.map(|release| format!("rdma-core {release}")));
    }
    put("libefa node", software.libefa.as_ref().and_then(|library| Some(format!("EFA_1.{}", library.node?))));
    for component in &software.components {
        put(component.name, Some(component.version.to_string()));
    }
    found
}

/// What of two hosts does not fit.
pub fn compare(ours: &Facts, theirs: &Facts) -> Vec<Outcome> {
    use Severity::{Note, Problem, Warning};
    let types = [&ours.instance_type, &theirs.instance_type];
    let mut all = vec![
        check("same-zone", "both are in one availability zone", Problem, zone(ours, theirs)),
        check("same-network", "both are in one virtual network", Problem, network(ours, theirs)),
        check("shared-security-group", "both are in one security group", Problem, security(ours, theirs)),
        check("types-talk", "the two instance types talk to each other", Problem, types_talk(types)),
        check("same-placement-group", "both are in one placement group", Note, {
            let remedy = "launch both into one cluster placement group, if latency matters";
            same(ours.placement_group.as_deref(), theirs.placement_group.as_deref(), remedy)
        }),
        check("generations", "RDMA reads go between the two generations", Warning, generations(ours, theirs)),
        check("capabilities-match", "both can do the same", Warning, capabilities(ours, theirs)),
        check("efa-counts", "both have as many EFAs", Note, {
            let [a, b] = [ours.efas, theirs.efas].map(|count| count.to_string());
            same(Some(&a), Some(&b), "let both sides use as many devices")
        }),
        check("same-architecture", "both have one architecture", Note, {
            let remedy = "nothing, if programs of both have one layout of messages";
            same(Some(&ours.architecture), Some(&theirs.architecture), remedy)
        }),
    ];
    for name in ["EFA installer", "EFA driver", "libefa", "libefa node", "libfabric", "NCCL", "NIXL"] {
        if let (Some(a), Some(b)) = (ours.version(name), theirs.version(name)) {
            let remedy = "install the same on both: peers must agree on features, unsolicited writes for one";
            let id = format!("same-{}", name.to_lowercase().replace(' ', "-"));
            all.push(check(&id, &format!("both have one version: {name}"), Warning, same(Some(a), Some(b), remedy)));
        }
    }
    all
}

fn check(id: &str, title: &str, severity: Severity, verdict: Verdict) -> Outcome {
    Outcome::new("between", id, title, severity, verdict)
}

fn unsaid() -> Verdict {
    Verdict::Unknown { why: "not both sides know theirs".to_owned(), ask: None }
}

fn differ(found: String, expected: &str, remedy: &str) -> Verdict {
    Verdict::Found { found, expected: expected.to_owned(), remedy: remedy.to_owned(), severity: None }
}

fn same(ours: Option<&str>, theirs: Option<&str>, remedy: &str) -> Verdict {
    match (ours, theirs) {
        (Some(a), Some(b)) if a == b => Verdict::Fine(a.to_owned()),
        (Some(a), Some(b)) => differ(format!("{a} here, {b} there"), "the same", remedy),
        _ => unsaid(),
    }
}

fn zone(ours: &Facts, theirs: &Facts) -> Verdict {
    same(ours.zone.as_deref(), theirs.zone.as_deref(), "launch both into one zone: EFA does not cross zones")
}

fn sets(a: &BTreeSet<String>, b: &BTreeSet<String>, remedy: &str) -> Verdict {
    let text = |set: &BTreeSet<String>| set.iter().cloned().collect::<Vec<_>>().join(", ");
    if a.is_empty() || b.is_empty() {
        return unsaid();
    }
    match a & b {
        common if common.is_empty() => differ(format!("{} here, {} there", text(a), text(b)), "one in common", remedy),
        common => Verdict::Fine(text(&common)),
    }
}

fn network(ours: &Facts, theirs: &Facts) -> Verdict {
    sets(&ours.networks, &theirs.networks, "launch both into one network: EFA is not routed between networks")
}

fn security(ours: &Facts, theirs: &Facts) -> Verdict {
    sets(
        &ours.security_groups,
        &theirs.security_groups,
        "put both into one group, with rules for all traffic from and to itself: rules with addresses do not count",
    )
}

fn types_talk([ours, theirs]: [&Option<String>; 2]) -> Verdict {
    let (Some(a), Some(b)) = (ours, theirs) else { return unsaid() };
    let alone = |kind: &str| ["p4d.", "p4de.", "dl1."].iter().any(|family| kind.starts_with(family));
    if a != b && (alone(a) || alone(b)) {
        return differ(format!("{a} here, {b} there"), "one type", "P4d, P4de and DL1 talk to their own type alone");
    }
    Verdict::Fine(format!("{a} and {b}"))
}

fn generations(ours: &Facts, theirs: &Facts) -> Verdict {
    if ours.devices.is_empty() || theirs.devices.is_empty() {
        return unsaid();
    }
    let first = |facts: &Facts| facts.devices.contains("0xefa0");
    let text = |facts: &Facts| facts.devices.iter().cloned().collect::<Vec<_>>().join(", ");
    if first(ours) == first(theirs) {
        return Verdict::Fine(format!("{} and {}", text(ours), text(theirs)));
    }
    differ(
        format!("{} here, {} there", text(ours), text(theirs)),
        "both 0xefa0, the first generation, or neither",
        "use SEND between the two: reads between 0xefa0 and later devices do not work",
    )
}

fn capabilities(ours: &Facts, theirs: &Facts) -> Verdict {
    if ours.capabilities.is_empty() || theirs.capabilities.is_empty() {
        return unsaid();
    }
    let apart: Vec<_> = ours.capabilities.symmetric_difference(&theirs.capabilities).cloned().collect();
    if apart.is_empty() {
        return Verdict::Fine(ours.capabilities.iter().cloned().collect::<Vec<_>>().join(", "));
    }
    differ(
        format!("one side alone has {}", apart.join(", ")),
        "the same on both",
        "install the same installer on both; programs may use only what both have (status 18 tells of a mismatch)",
    )
}

#[cfg(test)]
mod tests {
    use super::super::doctor::State;
    use super::*;

    fn facts() -> Facts {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Facts {
            instance_type: Some("p5.48xlarge".into()),
            zone: Some("use1-az1".into()),
            networks: set(&["vpc-1"]),
            security_groups: set(&["sg-1", "sg-2"]),
            placement_group: Some("pg".into()),
            efas: 32,
            devices: set(&["0xefa1"]),
            capabilities: set(&["RDMA_READ", "RDMA_WRITE"]),
            versions: vec![("EFA driver".into(), "2.17.3".into())],
            ..Facts::default()
        }
    }

    fn found(ours: &Facts, theirs: &Facts) -> Vec<String> {
        compare(ours, theirs).into_iter().filter(|one| one.state == State::Found).map(|one| one.id).collect()
    }

    #[test]
    fn two_equal_hosts_fit_and_each_difference_is_found_by_its_name() {
        let set = |name: &str| BTreeSet::from([name.to_owned()]);
        let ours = facts();
        assert_eq!(found(&ours, &ours), Vec::<String>::new());
        let mut changed: Vec<(&str, Facts)> = Vec::new();
        let mut change = |id: &'static str, how: &dyn Fn(&mut Facts)| {
            let mut theirs = facts();
            how(&mut theirs);
            changed.push((id, theirs));
        };
        change("same-zone", &|f| f.zone = Some("use1-az2".into()));
        change("same-network", &|f| f.networks = set("vpc-2"));
        change("shared-security-group", &|f| f.security_groups = set("sg-3"));
        change("types-talk", &|f| f.instance_type = Some("p4d.24xlarge".into()));
        change("same-placement-group", &|f| f.placement_group = Some("other".into()));
        change("generations", &|f| f.devices = set("0xefa0"));
        change("capabilities-match", &|f| f.capabilities = set("RDMA_READ"));
        change("efa-counts", &|f| f.efas = 16);
        change("same-efa-driver", &|f| f.versions = vec![("EFA driver".into(), "2.4".into())]);
        change("same-architecture", &|f| f.architecture = "aarch64".into());
        for (id, theirs) in &changed {
            assert_eq!(found(&ours, theirs), [*id]);
            assert_eq!(found(theirs, &ours), [*id]);
        }
        // A new comparison needs a line here.
        let mut all: Vec<_> = compare(&ours, &ours).into_iter().map(|one| one.id).collect();
        all.retain(|id| !changed.iter().any(|(known, _)| known == id));
        assert_eq!(all, Vec::<String>::new());
    }

    #[test]
    fn what_a_side_does_not_know_is_unknown_and_no_difference() {
        let nothing = Facts { architecture: "x86_64".into(), ..Facts::default() };
        let outcomes = compare(&Facts { efas: 0, ..facts() }, &nothing);
        let unknown: Vec<_> =
            outcomes.iter().filter(|one| one.state == State::Unknown).map(|one| one.id.as_str()).collect();
        let expected =
            ["same-zone", "same-network", "shared-security-group", "types-talk", "same-placement-group", "generations"];
        assert!(expected.iter().all(|id| unknown.contains(id)), "{unknown:?}");
    }
}
