//! Splits data into PutMetricData requests. Pure.

use super::Datum;

/// The maximum number of data in one request to CloudWatch.
pub(super) const MOST_DATA: usize = 1_000;

/// The maximum size of one request, in bytes. CloudWatch accepts 1 MB, compressed or not. Requests
/// are sent compressed, but counted here uncompressed.
pub(super) const MOST_BYTES: usize = 1_000_000;

/// The size of a request without its data: the namespace, at most 255 characters, and the names of
/// members.
const REQUEST_BYTES: usize = 400;

/// Splits the data, in order, into as few requests as the limits allow.
pub(super) fn chunks(data: Vec<Datum>) -> Vec<Vec<Datum>> {
    let mut chunks: Vec<Vec<Datum>> = Vec::new();
    let mut bytes = 0;
    for datum in data {
        let more = datum_bytes(&datum);
        match chunks.last_mut() {
            Some(chunk) if chunk.len() < MOST_DATA && bytes + more <= MOST_BYTES => {
                bytes += more;
                chunk.push(datum);
            }
            _ => {
                bytes = REQUEST_BYTES + more;
                chunks.push(vec![datum]);
            }
        }
    }
    chunks
}

/// Returns an upper bound of the size of a datum in CBOR: nine bytes for a number, five before a
/// text.
pub(super) fn datum_bytes(datum: &Datum) -> usize {
    let names = 160;
    let dimension = datum
        .dimension
        .as_ref()
        .map_or(0, |(name, value)| name.len() + value.len() + 40);
    names + datum.name.len() + datum.unit.len() + dimension + datum.values.len() * 18
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn datum(values: usize, queue: usize) -> Datum {
        Datum {
            name: "Duration",
            unit: "Milliseconds",
            dimension: Some(("Queue", "q".repeat(queue))),
            at_ms: 0,
            resolution_s: 60,
            values: vec![(1.0, 1); values],
        }
    }

    proptest! {
        #[test]
        fn chunks_keep_every_datum_within_the_limits(shapes in proptest::collection::vec((1_usize..=150, 1_usize..=255), 0..2_500)) {
            let data: Vec<Datum> = shapes.iter().map(|(values, queue)| datum(*values, *queue)).collect();
            let chunks = chunks(data.clone());
            for chunk in &chunks {
                let bytes: usize = chunk.iter().map(datum_bytes).sum();
                prop_assert!(!chunk.is_empty() && chunk.len() <= MOST_DATA);
                prop_assert!(bytes + REQUEST_BYTES <= MOST_BYTES);
            }
            prop_assert_eq!(chunks.concat(), data);
        }
    }

    #[test]
    fn thousand_small_datums_fit_one_request() {
        assert_eq!(chunks(vec![datum(1, 8); 1_000]).len(), 1);
        assert_eq!(chunks(vec![datum(1, 8); 1_001]).len(), 2);
        assert!(chunks(Vec::new()).is_empty());
    }
}
