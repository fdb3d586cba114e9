//! What holds of every form that travels, whatever arrives.

use efa_core::flags::{Access, SendOps};
use efa_core::wire::{EndpointBytes, EndpointInfo, Features, Grant, Hello, LibfabricAddress, ParseError, Ready};
use efa_core::{Caps, Gid, Incarnation, Qkey, Qpn, RKey};
use proptest::prelude::*;

/// A form's parser, as one that gives back what it would send.
#[derive(Clone, Copy, Debug)]
struct Form {
    reparse: fn(&[u8]) -> Result<Vec<u8>, ParseError>,
    /// Bytes that the parser does not look at.
    ignored: fn(usize) -> bool,
}

const NOTHING: fn(usize) -> bool = |_| false;

const HELLO: Form =
    Form { reparse: |bytes| Hello::parse(bytes).map(|hello| hello.to_frame().as_bytes().to_vec()), ignored: NOTHING };
const READY: Form =
    Form { reparse: |bytes| Ready::parse(bytes).map(|ready| ready.to_frame().as_bytes().to_vec()), ignored: NOTHING };
const GRANT: Form =
    Form { reparse: |bytes| Grant::parse(bytes).map(|grant| grant.to_frame().as_bytes().to_vec()), ignored: NOTHING };
const ENDPOINT: Form = Form {
    reparse: |bytes| EndpointInfo::parse(bytes).map(|info| info.to_bytes().as_bytes().to_vec()),
    ignored: NOTHING,
};
const LIBFABRIC: Form = Form {
    reparse: |bytes| LibfabricAddress::parse(bytes).map(|address| address.to_bytes().as_bytes().to_vec()),
    ignored: |at| matches!(at, 18 | 19 | 24..),
};
const FORMS: [Form; 5] = [HELLO, READY, GRANT, ENDPOINT, LIBFABRIC];

impl Form {
    /// A value is written back as it came; an error says something.
    fn check(self, bytes: &[u8]) {
        match (self.reparse)(bytes) {
            Ok(again) => {
                assert_eq!(again.len(), bytes.len());
                for (at, (sent, came)) in again.iter().zip(bytes).enumerate() {
                    assert!(sent == came || (self.ignored)(at), "byte {at} of {bytes:02x?}");
                }
            }
            Err(error) => assert!(error.to_string().contains(';'), "{error} names no remedy"),
        }
    }

    /// Everything that can happen to the bytes of a valid form.
    fn check_damage(self, valid: &[u8]) {
        assert_eq!((self.reparse)(valid).as_deref(), Ok(valid));
        for length in 0..valid.len() {
            let error = (self.reparse)(&valid[..length]).unwrap_err();
            assert!(matches!(error, ParseError::Missing { found, .. } if found == length), "{length}: {error:?}");
        }
        let mut longer = valid.to_vec();
        longer.push(0);
        let error = (self.reparse)(&longer).unwrap_err();
        assert!(matches!(error, ParseError::Trailing { found, .. } if found == longer.len()), "{error:?}");
        for bit in 0..valid.len() * 8 {
            let mut bytes = valid.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            self.check(&bytes);
        }
        for other in FORMS {
            other.check(valid);
        }
    }
}

fn gid() -> impl Strategy<Value = Gid> {
    any::<[u8; 16]>().prop_map(Gid).prop_filter("names nobody", |gid| !gid.is_zero())
}

fn endpoint() -> impl Strategy<Value = EndpointInfo> {
    (gid(), any::<u16>(), any::<u32>()).prop_map(|(gid, qpn, qkey)| EndpointInfo {
        gid,
        qpn: Qpn(qpn),
        qkey: Qkey(qkey),
    })
}

fn incarnation() -> impl Strategy<Value = Incarnation> {
    any::<u64>().prop_map(Incarnation::from_random)
}

prop_compose! {
    fn hello()(
        endpoint in endpoint(),
        (features, ops, caps) in (any::<u32>(), any::<u8>(), any::<u32>()),
        (max_message, max_rdma) in any::<(u32, u32)>(),
        incarnation in incarnation(),
    ) -> Hello {
        Hello {
            endpoint,
            features: Features::from_bits_truncate(features),
            ops: SendOps::from_bits_truncate(ops),
            caps: Caps::from_bits_retain(caps),
            max_message,
            max_rdma,
            incarnation,
        }
    }
}

prop_compose! {
    fn ready()(gid in gid(), qpn in any::<u16>(), incarnation in incarnation(), echo in incarnation()) -> Ready {
        Ready { gid, qpn: Qpn(qpn), incarnation, echo }
    }
}

prop_compose! {
    fn grant()(
        address in any::<u64>(),
        length in any::<u64>(),
        rkey in any::<u32>(),
        access in prop::sample::select(vec![
            Access::REMOTE_READ,
            Access::REMOTE_WRITE,
            Access::REMOTE_READ | Access::REMOTE_WRITE,
        ]),
        incarnation in incarnation(),
    ) -> Grant {
        Grant { address, length: length.min(u64::MAX - address), rkey: RKey(rkey), access, incarnation }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 256 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_hello_survives_the_trip_and_no_damage_panics(hello in hello()) {
        prop_assert_eq!(Hello::parse(hello.to_frame().as_bytes()), Ok(hello));
        HELLO.check_damage(hello.to_frame().as_bytes());
    }

    #[test]
    fn a_ready_survives_the_trip_and_no_damage_panics(ready in ready()) {
        prop_assert_eq!(Ready::parse(ready.to_frame().as_bytes()), Ok(ready));
        READY.check_damage(ready.to_frame().as_bytes());
    }

    #[test]
    fn a_grant_survives_the_trip_and_no_damage_panics(grant in grant()) {
        prop_assert_eq!(Grant::parse(grant.to_frame().as_bytes()), Ok(grant));
        GRANT.check_damage(grant.to_frame().as_bytes());
    }

    #[test]
    fn an_address_survives_the_trip_in_each_of_its_forms(info in endpoint()) {
        prop_assert_eq!(EndpointInfo::parse(info.to_bytes().as_bytes()), Ok(info));
        prop_assert_eq!(EndpointInfo::try_from(EndpointBytes::from(info)), Ok(info));
        let address = LibfabricAddress(info);
        prop_assert_eq!(LibfabricAddress::parse(address.to_bytes().as_bytes()), Ok(address));
        prop_assert_eq!(address.to_string().parse(), Ok(address));
        prop_assert_eq!(info.gid.to_string().parse(), Ok(info.gid));
        ENDPOINT.check_damage(info.to_bytes().as_bytes());
        LIBFABRIC.check_damage(address.to_bytes().as_bytes());
    }

    #[test]
    fn any_bytes_are_a_value_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        for form in FORMS {
            form.check(&bytes);
        }
    }

    #[test]
    fn any_body_behind_a_right_header_is_a_value_or_an_error(body in any::<[u8; 32]>(), tail in any::<[u8; 20]>()) {
        for (form, magic, length) in [(HELLO, b"EFAH", 60_u8), (READY, b"EFAR", 44), (GRANT, b"EFAG", 40)] {
            let header = magic.iter().copied().chain([0, 1, 0, length]);
            let bytes: Vec<u8> = header.chain(body).chain(tail).take(length.into()).collect();
            form.check(&bytes);
        }
    }

    #[test]
    fn any_text_is_an_address_or_an_error(text in "(fi_addr_efa://)?[\\[\\]:0-9a-f]{0,40}|\\PC{0,40}") {
        if let Ok(address) = text.parse::<LibfabricAddress>() {
            prop_assert_eq!(address.to_string().parse(), Ok(address));
        }
        if let Ok(gid) = text.parse::<Gid>() {
            prop_assert_eq!(gid.to_string().parse(), Ok(gid));
        }
    }
}
