//! Latency and bandwidth by size, as SVG.

use std::path::Path;

use efa_examples::fault::Fault;
use efa_examples::human::{Bytes, Rate, Time};
use efa_examples::pingpong::Row;
use plotters::prelude::*;

use crate::sizes::{ONE, OPERATIONS};

pub(crate) const LATENCY: &str = "end_to_end-latency.svg";
pub(crate) const BANDWIDTH: &str = "end_to_end-bandwidth.svg";

const COLORS: [RGBColor; 4] =
    [RGBColor(31, 119, 180), RGBColor(214, 39, 40), RGBColor(255, 127, 14), RGBColor(44, 160, 44)];

pub(crate) fn draw(rows: &[(&'static str, Row)], folder: &Path) -> Result<(), Fault> {
    let failed = |error: DrawingAreaErrorKind<std::io::Error>| Fault::Store(std::io::Error::other(error.to_string()));
    let latency = |row: &Row| row.latency.p50.as_nanos() as f64;
    let time = |nanos: &f64| Time(std::time::Duration::from_nanos(*nanos as u64)).to_string();
    chart(rows, &folder.join(LATENCY), "latency, p50", latency, &time, SeriesLabelPosition::UpperLeft)
        .map_err(failed)?;
    let bandwidth = |row: &Row| row.rate.per_second * row.size as f64;
    let rate = |per_second: &f64| Rate { per_second: *per_second }.bytes().to_string();
    chart(rows, &folder.join(BANDWIDTH), "bandwidth", bandwidth, &rate, SeriesLabelPosition::LowerRight).map_err(failed)
}

/// Lines over size, both axes logarithmic: one for each operation, solid within one process, thin between two.
fn chart(
    rows: &[(&'static str, Row)],
    file: &Path,
    title: &str,
    value: impl Fn(&Row) -> f64,
    label: &dyn Fn(&f64) -> String,
    legend: SeriesLabelPosition,
) -> Result<(), DrawingAreaErrorKind<std::io::Error>> {
    let values = || rows.iter().map(|(_, row)| value(row)).filter(|value| *value > 0.0);
    let sizes = || rows.iter().map(|(_, row)| row.size as f64);
    let least = |values: &mut dyn Iterator<Item = f64>| values.fold(f64::MAX, f64::min);
    let most = |values: &mut dyn Iterator<Item = f64>| values.fold(1.0, f64::max);
    let area = SVGBackend::new(file, (900, 560)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(format!("{title}, software device: thick in one process, thin between two"), ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(80)
        .build_cartesian_2d(
            (least(&mut sizes())..most(&mut sizes())).log_scale().base(2.0),
            (least(&mut values()) / 1.5..most(&mut values()) * 1.5).log_scale(),
        )?;
    chart
        .configure_mesh()
        .x_label_formatter(&|size| Bytes(*size as u64).to_string())
        .y_label_formatter(label)
        .x_labels(10)
        .light_line_style(WHITE)
        .draw()?;
    for (operation, color) in OPERATIONS.into_iter().zip(COLORS) {
        for how in [ONE, crate::sizes::TWO] {
            let of = rows.iter().filter(|(of, row)| *of == how && row.operation == operation && value(row) > 0.0);
            let points: Vec<(f64, f64)> = of.map(|(_, row)| (row.size as f64, value(row))).collect();
            let style = color.stroke_width(if how == ONE { 3 } else { 1 });
            let drawn = chart.draw_series(LineSeries::new(points, style))?;
            if how == ONE {
                drawn.label(operation.to_string()).legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
            }
        }
    }
    chart.configure_series_labels().position(legend).background_style(WHITE).border_style(BLACK).draw()?;
    area.present()
}
