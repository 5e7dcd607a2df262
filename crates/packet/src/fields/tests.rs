//! Tests of layouts: which fields share bytes, are left out, or are rejected.

use super::*;

fn stage(name: &str, reads: &[&str], writes: &[&str]) -> StageUse {
    let declare = |names: &[&str]| names.iter().map(|name| FieldDecl::new(name, 4)).collect();
    StageUse { stage: name.to_owned(), reads: declare(reads), writes: declare(writes) }
}

fn offsets(layout: &Layout) -> Vec<(&str, Option<u16>)> {
    let rows = layout.describe().iter().filter(|row| ![TIMESTAMP_NS, WIRE_LEN, SEQUENCE].contains(&row.name.as_str()));
    rows.map(|row| (row.name.as_str(), row.offset)).collect()
}

#[track_caller]
fn check(stages: &[StageUse], expected: &[(&str, Option<u16>)], record_bytes: usize) {
    let layout = Layout::compose(stages).unwrap();
    assert_eq!(offsets(&layout), expected);
    assert_eq!(layout.record_bytes, record_bytes);
}

#[track_caller]
fn refused(stages: &[StageUse], expected: &str) {
    assert_eq!(Layout::compose(stages).unwrap_err().to_string(), expected);
}

#[test]
fn fields_that_live_one_after_the_other_share_bytes() {
    let stages = [stage("a", &[], &["x"]), stage("b", &["x"], &[]), stage("c", &[], &["y"]), stage("d", &["y"], &[])];
    check(&stages, &[("x", Some(0)), ("y", Some(0))], 4);
}

#[test]
fn fields_that_live_at_the_same_time_do_not() {
    let stages = [stage("a", &[], &["x"]), stage("b", &[], &["y"]), stage("c", &["x"], &[]), stage("d", &["y"], &[])];
    check(&stages, &[("x", Some(0)), ("y", Some(4))], 8);
}

#[test]
fn a_stage_may_write_one_field_before_it_reads_the_other() {
    let stages = [stage("a", &[], &["x"]), stage("b", &["x"], &["y"]), stage("c", &["y"], &[])];
    check(&stages, &[("x", Some(0)), ("y", Some(4))], 8);
}

#[test]
fn a_field_that_nobody_reads_is_not_carried() {
    check(&[stage("a", &[], &["x"])], &[("x", None)], 0);
    let layout = Layout::compose(&[stage("a", &[], &["x"])]).unwrap();
    let field = layout.field::<u32>("x").unwrap();
    assert!(!field.is_carried());
    field.write(&mut [], 5);
    assert_eq!(field.read(&[]), 0);
}

#[test]
fn a_writer_behind_the_last_reader_hits_nobody_else() {
    let stages = [
        stage("a", &[], &["x"]),
        stage("b", &["x"], &[]),
        stage("c", &[], &["y"]),
        stage("d", &[], &["x"]),
        stage("e", &["y"], &[]),
    ];
    check(&stages, &[("x", Some(0)), ("y", Some(4))], 8);
}

#[test]
fn a_reader_without_a_writer_is_an_error() {
    refused(&[stage("nat", &["x"], &[])], "`nat` reads field `x`, but no stage before it writes it");
    refused(&[stage("nat", &["x"], &["x"])], "`nat` reads field `x`, but no stage before it writes it");
    refused(
        &[stage("nat", &["x"], &[]), stage("firewall", &[], &["x"])],
        "`nat` reads field `x`, but no stage before it writes it",
    );
}

#[test]
fn widths_must_agree_and_be_powers_of_two() {
    let stages = [stage("a", &[], &["x"]), StageUse::new("b").reads("x", 8)];
    refused(&stages, "`b` declares field `x` with 8 bytes, `a` with 4");
    refused(&[StageUse::new("a").writes("x", 3)], "`a` declares field `x` with 3 bytes; a field has 1, 2, 4 or 8");
    let layout = Layout::compose(&[stage("a", &[], &["x"])]).unwrap();
    assert_eq!(layout.field::<u64>("x").unwrap_err().to_string(), "field `x` has 4 bytes, its type 8");
    assert_eq!(layout.field::<u32>("z").unwrap_err().to_string(), "no stage declares field `z`");
}

#[test]
fn the_source_writes_what_a_sink_reads() {
    let sink = StageUse::new("sink").reads(TIMESTAMP_NS, 8).reads(WIRE_LEN, 4);
    let layout = Layout::compose(&[stage("a", &[], &[]), sink]).unwrap();
    assert_eq!(layout.record_bytes, 16);
    assert!(layout.timestamp.is_carried() && layout.wire_len.is_carried() && !layout.sequence.is_carried());
    assert_eq!(Layout::compose(&[]).unwrap().record_bytes, 0);
    let lines = layout.cache_lines(128);
    assert_eq!((lines.headers, lines.records, lines.extension, lines.total()), (128, 32, 32, 192));
}

#[test]
fn small_fields_fill_the_gaps_of_wide_ones() {
    let first = StageUse::new("a").writes("byte", 1).writes("word", 8).writes("half", 2);
    let last = StageUse::new("b").reads("byte", 1).reads("word", 8).reads("half", 2);
    check(&[first, last], &[("word", Some(0)), ("half", Some(8)), ("byte", Some(10))], 16);
}

#[test]
fn too_many_fields_are_an_error() {
    let names: Vec<String> = (0..40).map(|n| n.to_string()).collect();
    let (mut first, mut last) = (StageUse::new("a"), StageUse::new("b"));
    for name in &names {
        (first, last) = (first.writes(name, 8), last.reads(name, 8));
    }
    refused(&[first, last], "the chain's fields need more than 256 bytes for each packet");
}
