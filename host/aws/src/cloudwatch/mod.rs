//! Publishes data to CloudWatch by PutMetricData, in requests within its limits. Knows no queue and
//! no meter.

mod chunk;

use crate::failure::{About, CallName, code};
use aws_config::SdkConfig;
use aws_config::timeout::TimeoutConfig;
use aws_sdk_cloudwatch::Client;
use aws_sdk_cloudwatch::config::http::HttpResponse;
use aws_sdk_cloudwatch::error::SdkError;
use aws_sdk_cloudwatch::operation::put_metric_data::PutMetricDataError;
use aws_sdk_cloudwatch::primitives::DateTime;
use aws_sdk_cloudwatch::types::{Dimension, MetricDatum, StandardUnit};
use std::time::Duration;

/// How long one call may take, its second attempt included.
const PATIENCE: Duration = Duration::from_secs(10);

/// The longest value of a dimension that we send. CloudWatch takes 1,024 characters.
const LONGEST_NAME: usize = 255;

/// One metric at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Datum {
    /// The metric's name.
    pub name: &'static str,
    /// CloudWatch's name of the unit: `Count`, `Milliseconds`, `None`.
    pub unit: &'static str,
    /// The value of the dimension `Queue`; no dimension without.
    pub queue: Option<String>,
    /// Milliseconds since the Unix epoch. CloudWatch takes those of the last two weeks.
    pub at_ms: u64,
    /// 60, or 1 for metrics that are to be kept by the second.
    pub resolution_s: i32,
    /// 1 to 150 distinct values with how often each was seen. All finite.
    pub values: Vec<(f64, u64)>,
}

/// Why data were not put. The text is one line for a person.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PutError {
    /// CloudWatch will not take these data, now or later.
    #[error("{0}")]
    Refused(String),
    /// Another try may do better: no answer, a throttle, credentials, permissions.
    #[error("{0}")]
    Failed(String),
}

/// CloudWatch in one region, for one namespace.
#[derive(Debug, Clone)]
pub struct CloudWatch {
    client: Client,
    namespace: String,
    place: String,
}

impl CloudWatch {
    /// Connects nothing yet: the first call does. `namespace` must not begin with `AWS/`. Requests
    /// of 10 KB and more are compressed, which is the SDK's default and can be turned off with
    /// `AWS_DISABLE_REQUEST_COMPRESSION`.
    pub fn connect(config: &SdkConfig, namespace: impl Into<String>) -> Self {
        let limited = super::with_limits(config);
        let timeouts = TimeoutConfig::builder()
            .connect_timeout(super::CONNECT_TIMEOUT)
            .operation_timeout(PATIENCE)
            .build();
        let own = aws_sdk_cloudwatch::config::Builder::from(&limited).timeout_config(timeouts);
        Self {
            client: Client::from_conf(own.build()),
            namespace: namespace.into(),
            place: super::place(config, "CLOUDWATCH"),
        }
    }

    /// The data in their order, in parts that `put` can send.
    pub fn parts(data: Vec<Datum>) -> Vec<Vec<Datum>> {
        chunk::chunks(data)
    }

    /// Sends one part. Takes 10 s at most. After a failure it may still have arrived.
    pub async fn put(&self, part: &[Datum]) -> Result<(), PutError> {
        self.client
            .put_metric_data()
            .namespace(&self.namespace)
            .set_metric_data(Some(part.iter().map(datum).collect()))
            .send()
            .await
            .map(|_| ())
            .map_err(|error| self.sorted(&error))
    }

    fn sorted(&self, error: &SdkError<PutMetricDataError, HttpResponse>) -> PutError {
        let call = CallName {
            step: "PutMetricData",
            about: About::Namespace(&self.namespace),
            place: &self.place,
        };
        let words = call.failed(error).message;
        let status = error.raw_response().map_or(0, |raw| raw.status().as_u16());
        if is_final(status, code(error).unwrap_or_default()) {
            PutError::Refused(words)
        } else {
            PutError::Failed(words)
        }
    }
}

/// Whether the data themselves are what CloudWatch does not take. What a person can put right while
/// we run is not: a permission, a policy, the address of an endpoint.
fn is_final(status: u16, code: &str) -> bool {
    let code = code.to_ascii_lowercase();
    let about_data = [
        "invalidparameter",
        "missingparameter",
        "invalidformat",
        "validation",
    ];
    status == 413 || (status == 400 && about_data.iter().any(|word| code.contains(word)))
}

fn datum(datum: &Datum) -> MetricDatum {
    let queue = datum.queue.as_deref();
    let dimension = queue.map(|queue| {
        Dimension::builder()
            .name("Queue")
            .value(plain(queue))
            .build()
    });
    MetricDatum::builder()
        .metric_name(datum.name)
        .unit(StandardUnit::from(datum.unit))
        .set_dimensions(dimension.map(|dimension| vec![dimension]))
        .timestamp(DateTime::from_millis(
            i64::try_from(datum.at_ms).unwrap_or(i64::MAX),
        ))
        .storage_resolution(datum.resolution_s)
        .set_values(Some(datum.values.iter().map(|(value, _)| *value).collect()))
        .set_counts(Some(
            datum
                .values
                .iter()
                .map(|(_, count)| *count as f64)
                .collect(),
        ))
        .build()
}

/// A name as the value of a dimension may be: printable ASCII, not beginning with a colon. One bad
/// character would cost the whole request.
fn plain(name: &str) -> String {
    let printable = |c: char| {
        if c.is_ascii_graphic() || c == ' ' {
            c
        } else {
            '_'
        }
    };
    let plain: String = name.chars().take(LONGEST_NAME).map(printable).collect();
    match plain.strip_prefix(':') {
        Some(rest) => format!("_{rest}"),
        None => plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_server::{Act, TestServer, answer, configuration};

    fn sample(values: usize) -> Datum {
        let value = |number| (f64::from(u32::try_from(number).expect("small")) + 0.5, 3);
        Datum {
            name: "Duration",
            unit: "Milliseconds",
            queue: Some("sqs:orders".into()),
            at_ms: 1_700_000_000_000,
            resolution_s: 60,
            values: (0..values).map(value).collect(),
        }
    }

    async fn put(act: Act, part: &[Datum]) -> (Result<(), PutError>, String) {
        // The SDK tries twice.
        let again = answer(200, CBOR, "");
        let server = TestServer::start(vec![act, again]).await;
        let client = CloudWatch::connect(&configuration(server.address()), "Dispatcher-test");
        let outcome = client.put(part).await;
        (outcome, server.requests().remove(0))
    }

    const CBOR: &str = "smithy-protocol: rpc-v2-cbor\r\nContent-Type: application/cbor\r\n";

    fn length(request: &str) -> usize {
        let line = request
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        line.and_then(|length| length.parse().ok())
            .expect("a length")
    }

    #[tokio::test]
    async fn request_is_no_larger_than_estimated() {
        for values in [1, 150] {
            let part = vec![sample(values)];
            let counted: usize = part.iter().map(chunk::datum_bytes).sum();
            let (outcome, request) = put(answer(200, CBOR, ""), &part).await;
            assert_eq!(outcome, Ok(()));
            assert!(request.contains("sqs:orders") && request.contains("Dispatcher-test"));
            assert!(
                !request.contains("content-encoding"),
                "small ones are sent as they are"
            );
            assert!(
                length(&request) <= counted + 400,
                "{} for {counted}",
                length(&request)
            );
        }
    }

    #[tokio::test]
    async fn large_requests_are_compressed() {
        let (outcome, request) = put(answer(200, CBOR, ""), &vec![sample(150); 20]).await;
        assert_eq!(outcome, Ok(()));
        assert!(request.contains("content-encoding: gzip"), "{request}");
    }

    #[tokio::test]
    async fn request_is_retried_after_a_server_error() {
        let (outcome, _) = put(answer(500, CBOR, ""), &[sample(1)]).await;
        assert_eq!(outcome, Ok(()));
    }

    #[tokio::test]
    async fn denied_request_is_kept_for_later() {
        let (outcome, _) = put(answer(403, CBOR, ""), &[sample(1)]).await;
        assert!(matches!(outcome, Err(PutError::Failed(_))), "{outcome:?}");
        assert!(is_final(400, "InvalidParameterValueException"));
        assert!(!is_final(400, "ThrottlingException"));
        assert!(!is_final(403, "AccessDeniedException"));
    }

    #[test]
    fn metric_name_is_printable() {
        assert_eq!(plain(":a\u{e4}\n b"), "_a__ b");
        assert_eq!(plain(&"x".repeat(999)).len(), LONGEST_NAME);
    }
}
