//! A report without addresses and names, so that it can be shown to strangers.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

/// The text with each address, each identifier of AWS's and this host's name replaced by a number: equal ones by the
/// same, so that one sees which are.
pub fn redact(text: &str, host: &str) -> String {
    let mut known = BTreeMap::new();
    let mut out = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !is_part(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        out += &replaced(word, host, &mut known);
        let next = after.find(is_part).unwrap_or(after.len());
        out += &after[..next];
        rest = &after[next..];
    }
    out
}

fn is_part(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, ':' | '.' | '-' | '_')
}

fn replaced(word: &str, host: &str, known: &mut BTreeMap<String, String>) -> String {
    // A full stop or colon may end a sentence.
    let trimmed = word.trim_end_matches(['.', ':']);
    let Some(kind) = kind(trimmed, host) else { return word.to_owned() };
    let number = known.len() + 1;
    let name = known.entry(trimmed.to_owned()).or_insert_with(|| format!("{kind}-{number}"));
    format!("{name}{}", &word[trimmed.len()..])
}

/// What a word is that is not to be shown.
fn kind(word: &str, host: &str) -> Option<&'static str> {
    let hex = |text: &str| text.len() >= 8 && text.chars().all(|c| c.is_ascii_hexdigit());
    // Also with its domain; and a name that EC2 made of an address.
    let named =
        !host.is_empty() && word.strip_prefix(host).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    let made = word
        .strip_prefix("ip-")
        .is_some_and(|rest| rest.split(['-', '.']).take(4).filter(|part| part.parse::<u8>().is_ok()).count() == 4);
    if named || made {
        return Some("HOST");
    }
    let prefixes = [("i-", "INSTANCE"), ("eni-", "INTERFACE"), ("vpc-", "NETWORK"), ("subnet-", "SUBNET")];
    let prefixes = prefixes.iter().chain(&[("sg-", "GROUP"), ("sgr-", "RULE"), ("h-", "HOST")]);
    for (prefix, kind) in prefixes {
        if word.strip_prefix(prefix).is_some_and(hex) {
            return Some(kind);
        }
    }
    let groups: Vec<&str> = word.split(':').collect();
    if groups.len() == 6 && groups.iter().all(|group| group.len() == 2 && u8::from_str_radix(group, 16).is_ok()) {
        return Some("MAC");
    }
    // Versions have four numbers too, but not of this size.
    if word.parse::<Ipv4Addr>().is_ok_and(|address| address.octets()[0] >= 10) {
        return Some("ADDRESS");
    }
    let long = word.matches(':').count() >= 2;
    (long && word.parse::<Ipv6Addr>().is_ok()).then_some("ADDRESS")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_identifiers_and_the_hosts_name_are_numbers_and_equal_ones_the_same() {
        let text = "node7 at fe80::1, fe80:0000:0000:0000:0000:00ff:fe00:0002 and 10.0.0.7: sg-0123456789abcdef0, \
                    vpc-00ff00ff, i-0123456789abcdef0; again fe80::1. 0a:00:1b:2c:3d:4e, \
                    node7.local, ip-10-0-0-8.ec2.internal";
        let shown = redact(text, "node7");
        assert_eq!(
            shown,
            "HOST-1 at ADDRESS-2, ADDRESS-3 and ADDRESS-4: GROUP-5, NETWORK-6, INSTANCE-7; again ADDRESS-2. MAC-8, \
             HOST-9, HOST-10"
        );
    }

    #[test]
    fn what_a_reader_needs_stays() {
        for text in [
            "GPU 0000:53:00.0 on p5.48xlarge",
            "installer 1.43.1, EFA_1.4, 2.17.3.0",
            "efa-direct::x",
            "rdmap0s6: fine",
        ] {
            assert_eq!(redact(text, ""), text);
        }
    }
}
