//! What EC2 says of the instance, and what only its API can say.

use super::super::Host;
use super::super::view::Asked;
use super::device::type_command;
use super::rules;
use super::verdict::{ask, fine, found, listed, moot, unknown};
use super::{Check, Severity, Verdict};

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "metadata",
        title: "the instance metadata service answers",
        severity: Severity::Note,
        explain: "It says zone, network and security groups. It is asked for a second, by its second version. In a \
                  container it needs a hop limit of 2. Without it that is unknown, and nothing else is wrong.",
        judge: metadata,
    },
    Check {
        id: "instance-type",
        title: "the instance type is in the list",
        severity: Severity::Note,
        explain: "By DMI, without a network, or by the metadata service. The list is dated, and from documentation: a \
                  type that is not in it is unknown.",
        judge: kind,
    },
    Check {
        id: "rdma-read",
        title: "the instance type has RDMA",
        severity: Severity::Note,
        explain: "EFAs of Nitro v3 have SEND alone; libfabric's fabric efa emulates reads and writes with it.",
        judge: rdma,
    },
    Check {
        id: "rdma-write",
        title: "the instance type has RDMA write",
        severity: Severity::Note,
        explain: "P4d, P4de, C7gn and Hpc7g have RDMA read and no RDMA write.",
        judge: write,
    },
    Check {
        id: "same-type-peers",
        title: "the instance type talks to other types",
        severity: Severity::Note,
        explain: "P4d, P4de and DL1 talk by EFA only to their own type (AWS's documentation).",
        judge: same_type,
    },
    Check {
        id: "security-group",
        title: "security groups let EFA through",
        severity: Severity::Problem,
        explain: "EFA needs rules for all traffic (protocol -1), inbound and outbound, whose other side is the group \
                  itself. A rule with addresses, even 0.0.0.0/0, does not match EFA; neither do rules for TCP, UDP \
                  and ICMP (H28). Without them peers are unreachable (status 15) or unresponsive (13). The host \
                  cannot see its rules: give what the command prints by `--rules FILE`.",
        judge: security,
    },
    Check {
        id: "placement-group",
        title: "the instance is in a placement group",
        severity: Severity::Note,
        explain: "A cluster placement group puts instances near each other. EFA works without, with longer ways.",
        judge: placement,
    },
    Check {
        id: "tenancy",
        title: "the tenancy allows EFA",
        severity: Severity::Warning,
        explain: "Instances on dedicated hosts or with dedicated tenancy have limits of their own for EFA, by type, \
                  and on Outposts there is none (AWS's documentation). The metadata service says only whether there \
                  is a dedicated host.",
        judge: tenancy,
    },
];

fn metadata(host: &Host) -> Verdict {
    match &host.view.metadata {
        Asked::Answered(said) => fine(format!("it said {} things", said.len())),
        Asked::Failed(why) => found(
            format!("no answer in a second: {why}"),
            "an answer",
            format!(
                "in a container: `aws ec2 modify-instance-metadata-options{} --instance-id {} \
                 --http-put-response-hop-limit 2`",
                host.instance.region_option(),
                host.instance.id_or_blank()
            ),
        ),
        Asked::Not => moot("this machine is none of EC2's, or it was not asked"),
    }
}

fn kind(host: &Host) -> Verdict {
    match (&host.instance.kind, host.instance.row) {
        (None, _) => unknown("neither DMI nor the metadata service says one"),
        (Some(kind), None) => found(
            format!("{kind}, which the list does not have"),
            "a type of the list",
            format!("ask AWS: `{}`", type_command(host, kind)),
        ),
        (Some(kind), Some(row)) => fine(format!("{kind}, Nitro {}", row.nitro)),
    }
}

fn rdma(host: &Host) -> Verdict {
    match (&host.instance.kind, host.instance.row) {
        (Some(kind), Some(row)) if !row.read => found(
            format!("{kind} (Nitro {}) has SEND alone", row.nitro),
            "RDMA read",
            "use SEND, or another type; `ctx.require` says at run time what there is",
        ),
        (Some(kind), Some(_)) => fine(kind.clone()),
        _ => unknown("the instance type is not known, or not in the list"),
    }
}

fn write(host: &Host) -> Verdict {
    match (&host.instance.kind, host.instance.row) {
        (Some(_), Some(row)) if !row.read => moot("it has no RDMA at all"),
        (Some(kind), Some(row)) if !row.write => found(
            format!("{kind} has RDMA read, and no RDMA write"),
            "RDMA write",
            "let the other side read, or use SEND",
        ),
        (Some(kind), Some(_)) => fine(kind.clone()),
        _ => unknown("the instance type is not known, or not in the list"),
    }
}

fn same_type(host: &Host) -> Verdict {
    let Some(kind) = &host.instance.kind else { return unknown("the instance type is not known") };
    if ["p4d.", "p4de.", "dl1."].iter().any(|family| kind.starts_with(family)) {
        return found(kind.clone(), "a type that talks to others", "use one type for all peers");
    }
    fine(kind.clone())
}

/// The command that prints what `--rules` takes.
fn rules_command(host: &Host) -> String {
    let groups: Vec<_> = host.instance.security.iter().map(String::as_str).collect();
    let groups = if groups.is_empty() { "GROUP_ID".to_owned() } else { groups.join(",") };
    format!(
        "aws ec2 describe-security-group-rules{} --filters Name=group-id,Values={groups} --output json",
        host.instance.region_option()
    )
}

fn security(host: &Host) -> Verdict {
    if !host.instance.ec2 && host.view.rules.is_none() {
        return moot("this machine is none of EC2's");
    }
    let Some(given) = &host.view.rules else {
        let groups = match host.instance.security.len() {
            0 => "of the instance's interfaces".to_owned(),
            _ => listed(&host.instance.security),
        };
        return ask(format!("the rules of {groups} cannot be seen from the host"), rules_command(host));
    };
    match rules::lacking(given, &host.instance.security) {
        Err(why) => unknown(format!("what --rules gave is not what the command prints: {why}")),
        Ok(lacking) if lacking.is_empty() => fine("all traffic of its own, inbound and outbound"),
        Ok(lacking) => found(
            lacking.join("; "),
            "in each direction a rule for all traffic (-1) whose other side is the group itself",
            format!(
                "`aws ec2 authorize-security-group-ingress{region} --group-id GROUP --protocol -1 --source-group \
                 GROUP`, and outbound `aws ec2 authorize-security-group-egress{region} --group-id GROUP \
                 --ip-permissions 'IpProtocol=-1,UserIdGroupPairs=[{{GroupId=GROUP}}]'`",
                region = host.instance.region_option()
            ),
        ),
    }
}

fn placement(host: &Host) -> Verdict {
    match (&host.view.metadata, &host.instance.group) {
        (Asked::Answered(_), None) => found(
            "none",
            "a cluster placement group",
            "launch all peers into one (`aws ec2 create-placement-group --strategy cluster`), if latency matters",
        ),
        (_, Some(group)) => fine(group.clone()),
        _ => unknown("the metadata service did not say"),
    }
}

fn tenancy(host: &Host) -> Verdict {
    if !host.instance.ec2 {
        return moot("this machine is none of EC2's");
    }
    let command = format!(
        "aws ec2 describe-instances{} --instance-ids {} --query \
         'Reservations[].Instances[].[Placement.Tenancy,OutpostArn]'",
        host.instance.region_option(),
        host.instance.id_or_blank()
    );
    match &host.instance.dedicated {
        Some(_) => found(
            "a dedicated host",
            "shared tenancy, or a type whose EFA works with dedicated ones",
            format!("look up the type in EFA's limits in AWS's documentation; `{command}`"),
        ),
        None if matches!(host.view.metadata, Asked::Answered(_)) => fine("no dedicated host"),
        None => ask("it cannot be seen from the host", command),
    }
}
