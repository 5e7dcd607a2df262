//! What the plan file reader accepts, what it rejects, and where.

use super::*;

fn check(text: &str, line: usize, what: &str, help: &str) {
    let problem = PlanFile::parse(text).expect_err(text);
    assert_eq!(problem.line_and_column(text).map(|(line, _)| line), Some(line), "{problem:?}");
    assert!(problem.what.contains(what), "{problem:?}");
    assert!(problem.help.contains(help), "{problem:?}");
}

#[test]
fn a_whole_plan_is_read() {
    let text = r#"
        workers = 2
        time = "capture"
        [input]
        split = "inside"
        inside = ["10.0.0.0/8"]
        [[nf]]
        function = "nat"
        [nf.config]
        external = ["198.51.100.1"]
        [nf.packet_set]
        fields = ["ip.src", "ip.dst"]
        symmetric = true
        [[nf]]
        function = "flow_counter"
    "#;
    let plan = PlanFile::parse(text).unwrap();
    assert_eq!(plan.workers.unwrap().into_inner(), 2);
    assert_eq!(plan.nf.len(), 2);
    assert_eq!(plan.nf[0].config.table()["external"][0].as_str(), Some("198.51.100.1"));
    let place = |path| plan.nf[0].config.place(path).map(|span| &text[span]);
    assert_eq!(place("external"), Some(r#"external = ["198.51.100.1"]"#));
    assert_eq!((place("external.0"), place("external[0]")), (Some(r#""198.51.100.1""#), place("external.0")));
    assert_eq!((place("external[1]"), place("inside")), (place("external"), None));
}

#[test]
fn tables_that_are_none_are_told_without_words_of_rust() {
    let table = "write a table, as { key = value }";
    check("input = \"a.pcap\"\n", 1, "invalid type: string \"a.pcap\", expected a table", table);
    check("nf = [\"nat\"]\n", 1, "invalid type: string \"nat\", expected a table", table);
    check("chain = 4\n", 1, "expected a table", table);
    check("[[nf]]\nfunction = \"nat\"\nwhen = \"in\"\n", 3, "expected a table", table);
    check("[[nf]]\nfunction = \"nat\"\npacket_set = \"ip.src\"\n", 3, "expected a table", table);
}

#[test]
fn control_characters_are_told_how_to_be_written() {
    check("time = \"a\0b\"\n", 1, "visible characters", "\\u0000");
    check("time = \"capture\n", 1, "expected `\"`", "end the text with the quote");
}

#[test]
fn each_table_of_a_list_has_its_place() {
    let text = r#"
        [[nf]]
        function = "load_balancer"
        [nf.config]
        rules = [{ port = 1 }, { protocol = "udp", port = 2 }]
        [[nf.config.service]]
        address = "203.0.113.10"
        [nf.config.service.check]
        kind = "http"
        [[nf.config.service]]
        address = "203.0.113.11"
        port = 53
    "#;
    let plan = PlanFile::parse(text).unwrap();
    let place = |path| plan.nf[0].config.place(path).map(|span| text[span].lines().next().unwrap_or_default());
    assert_eq!(place("rules[1]"), Some(r#"{ protocol = "udp", port = 2 }"#));
    assert_eq!(place("rules[1].port"), Some("2"));
    assert_eq!(place("service[0]"), Some("[[nf.config.service]]"));
    assert_eq!(place("service[1].address"), Some(r#""203.0.113.11""#));
    assert_eq!(place("service[1].missing"), place("service[1]"));
    assert_ne!(place("service[1]").map(str::as_ptr), place("service[0]").map(str::as_ptr));
    assert_eq!(place("service[0].check.kind"), Some(r#""http""#));
    assert_eq!(place("service.port"), place("service"), "it does not say which");
    let table = plan.nf[0].config.table();
    assert_eq!(table["service"][1]["port"].as_integer(), Some(53));
}

#[test]
fn misspelt_keys_are_refused_with_their_line_and_the_right_word() {
    check("batch = 64\nwrokers = 2\n", 2, "unknown field `wrokers`", "`workers`");
    check("[[nf]]\nfunction = \"nat\"\nconfg = {}\n", 3, "unknown field `confg`", "`config`");
    check("[[nf]]\nfunction = \"nat\"\nexternal = []\n", 3, "unknown field `external`", "`config.external`");
    check("[input]\nsplitt = \"inside\"\n", 2, "unknown field `splitt`", "`split`");
    check("full = \"refuse\"\n[[nf]]\nfunction = \"nat\"\n", 1, "unknown field `full`", "move it to `[[nf]]`");
    check("[chain]\nsplit = \"inside\"\n", 2, "unknown field `split`", "move it to `[input]`");
    let when = "[[nf]]\nfunction = \"nat\"\nwhen = { port = 1 }\n";
    check(when, 3, "unknown field `port`", "possible here: in, out, either, flooded");
    check(
        "[[nf]]\nfunction = \"nat\"\nsymmetric = true\n",
        3,
        "unknown field `symmetric`",
        "else move it to `[nf.packet_set]`",
    );
    let before = "move it to the beginning of the file, before the first table";
    check("[[nf]]\nfunction = \"nat\"\nworkers = 2\n", 3, "unknown field `workers`", before);
}

#[test]
fn wrong_types_and_missing_keys_are_refused() {
    check("\n\nworkers = \"two\"\n", 3, "string \"two\", expected a whole number", "without quotes");
    check("workers = 99999999999999999999\n", 1, "integer `99999999999999999999`, expected", "a smaller number");
    let big = "[[nf]]\nfunction = \"nat\"\nconfig.tcp_s = 99999999999999999999\n";
    check(big, 3, "integer `99999999999999999999`, expected a whole number", "a smaller number");
    check("in_order = \"yes\"\n", 1, "expected a boolean", "true or false");
    check("[input]\nfrom = \"a.pcap\"\n", 2, "expected a list", "in brackets, as [first, second]");
    check("[nf]\nfunction = \"nat\"\n", 1, "table, expected a list", "two brackets, as [[nf]]");
    check("[[nf]]\nfunction = \"nat\"\nconfig = 3\n", 3, "expected a table", "{ key = value }");
    check("batch = 1\n[[nf]]\nname = \"x\"\n", 2, "missing field `function`", "function = ");
    check("workers = = 2\n", 1, "", "TOML");
}

#[test]
fn a_key_without_a_value_lacks_it() {
    for text in ["workers =\n", "workers = # two\n", "workers = ", "workers ="] {
        check(text, 1, "`workers` has no value", "write the value behind it, workers = …");
    }
    check("batch = 1\r\n workers =\r\nsets = 2\r\n", 2, "`workers` has no value", "leave the line out");
    check("[[nf]]\nfunction = \"nat\"\n[nf.config]\ntcp_s = \nudp_s = 3\n", 4, "`tcp_s` has no value", "tcp_s = …");
}

#[test]
fn a_date_without_quotes_is_called_one() {
    check("time = 12:00:00\n", 1, "invalid type: a date or a time of day, expected a string", "a text in quotes");
    check("workers = 2026-12-24\n", 1, "a date or a time of day, expected a whole number", "without quotes");
    check("nf = 2026-12-24T16:00:00Z\n", 1, "a date or a time of day, expected a list", "in brackets");
    let config = "[[nf]]\nfunction = \"nat\"\nconfig = 12:00:00\n";
    check(config, 3, "a date or a time of day, expected a table", "{ key = value }");
    check("time = { a = 12:00:00 }\n", 1, "invalid type: table, expected a string", "a text in quotes");
}

#[test]
fn settings_lead_into_tables_and_keep_what_is_there() {
    let mut config = Config::default();
    config.set("timeouts.udp", toml::Value::Integer(30));
    config.set("timeouts.tcp", toml::Value::Integer(60));
    let table = config.table();
    assert_eq!((table["timeouts"]["udp"].as_integer(), table["timeouts"]["tcp"].as_integer()), (Some(30), Some(60)));
}

#[test]
fn two_functions_of_a_kind_get_different_names() {
    let plan = PlanFile::of_functions(["forward", "nat", "forward"]);
    assert_eq!(plan.nf[2].name.as_ref().map(|name| name.get_ref().as_str()), Some("forward_2"));
}

#[test]
fn words_without_quotes_and_quotes_without_an_end_are_named() {
    let plan = |function: &str| format!("[[nf]]\nfunction = {function}\n");
    for word in ["nat", "true_nat", "inside", "forward", "router"] {
        check(&plan(word), 2, "", "quote");
    }
    check("workers = two\n", 1, "", "write words in quotes, numbers without");
    check(&plan("\"nat"), 2, "invalid basic string", "end the text with the quote");
    check(&plan("'nat"), 2, "invalid literal string", "end the text with the quote");
}

#[test]
fn what_a_beginner_writes_gets_the_right_remedy() {
    let above = "[nf.config]\nexternal = [\"198.51.100.1\"]\n[[nf]]\nfunction = \"nat\"\n";
    check(above, 3, "duplicate key", "write `[nf.config]` below the `[[nf]]`");
    check("[[nf]]\nfunction = “nat”\n", 2, "must be quoted", "straight quotes");
    check("{\"nf\": [{\"function\": \"nat\"}]}\n", 1, "expected key", "correct the TOML at this place");
    check("workers = 1\nworkers = 2\n", 2, "duplicate key", "keep one of them");
}
