//! The signature of a request, by which the service knows who sent it.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt::Write;

/// `t=SECONDS,v1=HEX`: HMAC-SHA256 of the seconds since the Unix epoch, a full stop, and the body.
pub fn of(key: &[u8], now_s: u64, body: &[u8]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes a key of any length");
    mac.update(now_s.to_string().as_bytes());
    mac.update(b".");
    mac.update(body);
    let mut text = format!("t={now_s},v1=");
    for byte in mac.finalize().into_bytes() {
        write!(text, "{byte:02x}").expect("a string takes any text");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signature_is_hmac_sha256_of_time_and_body() {
        // printf '1700000000.{"a":1}' | openssl dgst -sha256 -hmac secret
        let signed = of(b"secret", 1_700_000_000, br#"{"a":1}"#);
        let digest = "49f24e537407743fa4a0242bb63b94b9a47ee99cbbe071ccd8a22550ae411686";
        assert_eq!(signed, format!("t=1700000000,v1={digest}"));
    }
}
