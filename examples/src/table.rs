//! A table of text for a terminal: the first column flush left, the others flush right, each as wide as its
//! widest cell. Width is counted in characters, which is right for the letters, digits and signs of these programs.

use core::fmt;

/// A head and rows of `N` cells. Show it with `Display`; it ends with a newline.
#[derive(Debug, Clone)]
pub struct Table<const N: usize> {
    rows: Vec<[String; N]>,
}

impl<const N: usize> Table<N> {
    /// A table with nothing below its head.
    pub fn new(head: [&str; N]) -> Self {
        Self { rows: vec![head.map(str::to_owned)] }
    }

    /// Adds a row at the end.
    pub fn row(&mut self, cells: [String; N]) {
        self.rows.push(cells);
    }
}

impl<const N: usize> fmt::Display for Table<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut widths = [0; N];
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        for row in &self.rows {
            for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
                match column {
                    0 => write!(f, "{cell:<width$}")?,
                    _ => write!(f, "  {cell:>width$}")?,
                }
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_in_characters() {
        let mut table = Table::new(["operation", "p50", "max"]);
        table.row(["send".into(), "1.23 µs".into(), "9 ms".into()]);
        table.row(["write".into(), "812 ns".into(), "12.3 ms".into()]);
        let expected = concat!(
            "operation      p50      max\n", //
            "send       1.23 µs     9 ms\n",
            "write       812 ns  12.3 ms\n",
        );
        assert_eq!(table.to_string(), expected);
    }

    #[test]
    fn a_table_without_rows_is_its_head() {
        assert_eq!(Table::new(["size", "rate"]).to_string(), "size  rate\n");
    }
}
