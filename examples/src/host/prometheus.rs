//! Counters as Prometheus' text, for its node exporter's textfile collector for one.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::counters::{Sample, described};

/// Each counter as a metric `efa_<name>_total` with the device as its label.
pub fn text(sample: &Sample) -> String {
    let mut text = String::new();
    let names: BTreeSet<&String> = sample.values().flat_map(|values| values.keys()).collect();
    for name in names {
        let metric = metric(name);
        let what = described(name).unwrap_or("a counter of the driver's");
        write!(text, "# HELP {metric} {what}\n# TYPE {metric} counter\n").expect("a string takes all");
        for (device, values) in sample {
            if let Some(value) = values.get(name) {
                writeln!(text, "{metric}{{device=\"{}\"}} {value}", escaped(device)).expect("a string takes all");
            }
        }
    }
    text
}

/// A name as Prometheus has them.
fn metric(name: &str) -> String {
    let name: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    format!("efa_{name}_total")
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_counter_is_one_metric_with_a_line_for_each_device() {
        let values = |number| [("tx_bytes".to_owned(), number), ("odd-name".to_owned(), 1)].into();
        let sample = [("rdmap0s6".to_owned(), values(7)), ("a\"b".to_owned(), values(8))].into();
        let expected = "# HELP efa_odd_name_total a counter of the driver's\n\
                        # TYPE efa_odd_name_total counter\n\
                        efa_odd_name_total{device=\"a\\\"b\"} 1\n\
                        efa_odd_name_total{device=\"rdmap0s6\"} 1\n\
                        # HELP efa_tx_bytes_total bytes sent\n\
                        # TYPE efa_tx_bytes_total counter\n\
                        efa_tx_bytes_total{device=\"a\\\"b\"} 8\n\
                        efa_tx_bytes_total{device=\"rdmap0s6\"} 7\n";
        assert_eq!(text(&sample), expected);
        assert_eq!(text(&super::super::counters::Sample::new()), "");
    }
}
