//! protocol.md itself: its code tables are the module's, its worked examples are vectors.

use std::collections::HashMap;

use rushgate::protocol::{Opcode, Status, tlv};

use crate::entry::valid;

const PROTOCOL_MD: &str = include_str!("../../protocol.md");

/// The cells of the table rows of protocol.md that begin with `| 0x`.
fn code_rows() -> Vec<Vec<&'static str>> {
    let rows = PROTOCOL_MD.lines().filter(|line| line.starts_with("| 0x"));
    rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

#[test]
fn the_tables_of_protocol_md_are_the_codes_of_the_module() {
    let rows = code_rows();
    let with = |digits: usize| rows.iter().filter(move |row| row[0].len() == digits + 2);
    let statuses: Vec<(u16, &str, &str)> = with(4)
        .filter(|row| row.len() == 7)
        .map(|row| (u16::from_str_radix(&row[0][2..], 16).unwrap(), row[1], row[2]))
        .collect();
    let expected: Vec<(u16, &str, String)> =
        Status::ALL.iter().map(|s| (s.code(), s.name(), (s.code() >> 12).to_string())).collect();
    let expected: Vec<(u16, &str, &str)> = expected.iter().map(|(c, n, k)| (*c, *n, k.as_str())).collect();
    assert_eq!(statuses, expected);
    let opcodes: Vec<(u8, &str)> =
        with(2).map(|row| (u8::from_str_radix(&row[0][2..], 16).unwrap(), row[1])).collect();
    assert_eq!(opcodes, Opcode::ALL.iter().map(|o| (*o as u8, o.name())).collect::<Vec<_>>());
    for (kind, name) in [
        (tlv::USER, "USER"),
        (tlv::CLIENT_ADDR, "CLIENT_ADDR"),
        (tlv::DEVICE, "DEVICE"),
        (tlv::CLAIMS, "CLAIMS"),
    ] {
        let code = format!("0x{kind:04X}");
        assert!(rows.iter().any(|row| row.len() == 4 && row[0] == code && row[1] == name), "{name}");
    }
}

#[test]
fn the_worked_examples_of_protocol_md_are_vectors() {
    let by_name: HashMap<String, Vec<u8>> =
        valid().into_iter().map(|entry| (entry.name.clone(), entry.bytes())).collect();
    let mut examples = 0;
    for part in PROTOCOL_MD.split("Vector `").skip(1) {
        let (name, rest) = part.split_once('`').unwrap();
        let dump = rest.split("```").nth(1).unwrap();
        let mut bytes = Vec::new();
        for line in dump.lines().filter(|line| !line.trim().is_empty()) {
            let (offset, row) = line.trim_start().split_once("  ").unwrap();
            assert_eq!(offset.parse(), Ok(bytes.len()), "{name}: offset in {line:?}");
            let hex = row.split("  ").next().unwrap();
            bytes.extend(hex.split(' ').map(|byte| u8::from_str_radix(byte, 16).unwrap()));
        }
        assert_eq!(Some(&bytes), by_name.get(name), "{name}");
        examples += 1;
    }
    assert!(examples >= 8, "only {examples} examples");
}
