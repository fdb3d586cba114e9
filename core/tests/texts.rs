//! What errors and names say to whoever reads them: the cause, the value and the way out.

use efa_core::memory::{MemoryFile, MemoryKind};
use efa_core::qp::QpState;
use efa_core::wire::{Features, Field, Frame, ParseError};
use efa_core::{Error, Gid, Limit, Verb};

#[test]
fn what_a_device_refuses_is_named_with_what_its_errno_means_there() {
    let cases = [
        (22, Verb::CreateAh, "make an address handle", "availability zone"),
        (22, Verb::CreateQp, "make a queue pair", "R22"),
        (22, Verb::CreateCq, "make a completion queue", "R17"),
        (22, Verb::Arm, "arm the completion queue", "on no channel"),
        (22, Verb::ModifyQp, "move the queue pair", "R01"),
        (23, Verb::CreateChannel, "make a completion channel", "RLIMIT_NOFILE"),
        (24, Verb::CreateChannel, "make a completion channel", "RLIMIT_NOFILE"),
        (95, Verb::CreateCq, "make a completion queue", "R30"),
        (95, Verb::ModifyQp, "move the queue pair", "port 1"),
        (12, Verb::CreateAh, "make an address handle", "R28"),
        (12, Verb::RegMr, "register memory", "RLIMIT_MEMLOCK"),
        (5, Verb::DestroyQp, "destroy the queue pair", "counted as leaked"),
        (5, Verb::RegMr, "register memory", "counted as leaked"),
        (71, Verb::CreateCounter, "make a completion counter", "errno 71"),
        (12, Verb::AllocPd, "make a protection domain", "errno 12"),
    ];
    for (errno, verb, asked, meaning) in cases {
        let text = Error::Device { verb, errno }.to_string();
        assert!(text.contains(asked) && text.contains(meaning), "{errno}, {verb:?}: {text}");
    }
}

#[test]
fn an_excess_is_named_with_the_remedy_for_what_it_is_of() {
    let cases = [
        (Limit::SendBuffers, "R09"),
        (Limit::MessageBytes, "R11"),
        (Limit::RdmaBytes, "flow::Split"),
        (Limit::RecvBytes, "R12"),
        (Limit::RecvBuffers, "Depth::recv_buffers"),
        (Limit::InlineBytes, "R10"),
        (Limit::RegionBytes, "R36"),
        (Limit::WritablePages, "larger pages"),
        (Limit::RnrRetries, "FOREVER"),
        (Limit::CompletionEntries, "R17"),
        (Limit::SendDepth, "Context::limits"),
        (Limit::RecvDepth, "Context::limits"),
        (Limit::Peers, "ask for less"),
    ];
    for (what, remedy) in cases {
        let text = Error::AboveLimit { what, asked: 1234, limit: 567 }.to_string();
        let all = text.contains("1234") && text.contains("567") && text.contains(&what.to_string());
        assert!(all && text.contains(remedy), "{what:?}: {text}");
    }
}

#[test]
fn r05_peers_of_one_type_are_told_which_features_differ_and_of_two_which_types() {
    let (plain, unsolicited) = (Features::DATAGRAM, Features::DATAGRAM | Features::UNSOLICITED_WRITE_RECV);
    let text = Error::FeatureMismatch { ours: plain, theirs: unsolicited }.to_string();
    assert!(text.contains("UNSOLICITED_WRITE_RECV") && text.contains("status 18"), "{text}");
    let text = Error::FeatureMismatch { ours: plain, theirs: Features::empty() }.to_string();
    assert!(text.contains("SRD") && text.contains("UD") && !text.contains("status 18"), "{text}");
}

#[test]
fn what_is_wrong_in_a_frame_is_named() {
    let fields = [
        (Field::Scheme, "scheme"),
        (Field::Gid, "gid"),
        (Field::QpNum, "qp_num"),
        (Field::Qkey, "qkey"),
        (Field::Features, "features"),
        (Field::Ops, "ops"),
        (Field::Incarnation, "incarnation"),
        (Field::Echo, "echoed incarnation"),
        (Field::Access, "access"),
    ];
    for (field, name) in fields {
        let text = ParseError::UnknownBits { frame: Frame::Hello, field, known: 0x3, found: 0x8 }.to_string();
        assert!(text.contains(&format!(": {name} 0x8")), "{text}");
    }
    let error = "fe80::1/64".parse::<Gid>().unwrap_err();
    assert!(error.to_string().contains("/length"), "{error}");
}

#[test]
fn states_and_kinds_of_memory_have_names() {
    let names = QpState::ALL.map(|state| state.to_string());
    assert_eq!(names, ["RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"]);
    assert_eq!(QpState::Unknown(9).to_string(), "state 9");
    let file = MemoryFile { fd: 7, offset: 0x1000, iova: 0 };
    let kinds = [
        (MemoryKind::Ordinary, "ordinary memory"),
        (MemoryKind::HugePages { bytes: 2 << 20, never_forks: true }, "huge pages of 2097152 bytes"),
        (MemoryKind::File(file), "a dma-buf, file 7 from 0x1000"),
    ];
    for (kind, name) in kinds {
        assert_eq!(kind.to_string(), name);
    }
}
