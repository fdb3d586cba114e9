//! Whether the rules of security groups let EFA through: what `aws ec2 describe-security-group-rules` printed.

use std::collections::BTreeSet;

use serde_json::Value;

/// What the rules lack, for these groups; nothing if EFA passes. EFA's traffic matches only rules for all protocols
/// whose other side is the group itself (H28).
///
/// # Errors
/// That it is not what that command prints.
pub(super) fn lacking(rules: &Value, groups: &BTreeSet<String>) -> Result<Vec<String>, String> {
    let rules = rules.get("SecurityGroupRules").and_then(Value::as_array);
    let rules = rules.ok_or("there is no list SecurityGroupRules in it")?;
    let text = |rule: &Value, name: &str| rule.get(name).and_then(Value::as_str).map(str::to_owned);
    let all: BTreeSet<String> = rules.iter().filter_map(|rule| text(rule, "GroupId")).collect();
    let groups = if groups.is_empty() { &all } else { groups };
    let mut lacking = Vec::new();
    for group in groups {
        for (egress, direction) in [(false, "inbound"), (true, "outbound")] {
            let own = rules.iter().filter(|rule| {
                text(rule, "GroupId").as_ref() == Some(group)
                    && rule.get("IsEgress").and_then(Value::as_bool) == Some(egress)
            });
            let passes = |rule: &&Value| {
                let other = rule.get("ReferencedGroupInfo").and_then(|info| text(info, "GroupId"));
                text(rule, "IpProtocol").as_deref() == Some("-1") && other.as_ref() == Some(group)
            };
            let own: Vec<&Value> = own.collect();
            if !own.iter().any(passes) {
                let others = own.iter().map(|rule| {
                    let address = text(rule, "CidrIpv4").or_else(|| text(rule, "CidrIpv6"));
                    let group = || rule.get("ReferencedGroupInfo").and_then(|info| text(info, "GroupId"));
                    let other = address.or_else(group).unwrap_or_else(|| "others".to_owned());
                    format!("{} with {other}", text(rule, "IpProtocol").unwrap_or_default())
                });
                let others: Vec<String> = others.collect();
                let beside = if others.is_empty() { String::new() } else { format!(" (only {})", others.join(", ")) };
                lacking.push(format!("{group} has no {direction} rule for all traffic of its own{beside}"));
            }
        }
    }
    Ok(lacking)
}
