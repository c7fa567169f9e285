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

/// The time limit of one call, including its second attempt.
const PATIENCE: Duration = Duration::from_secs(10);

/// The maximum length of a dimension's value. CloudWatch accepts 1,024 characters.
const LONGEST_NAME: usize = 255;

/// One metric at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Datum {
    /// The metric's name.
    pub name: &'static str,
    /// CloudWatch's name of the unit: `Count`, `Milliseconds`, `None`.
    pub unit: &'static str,
    /// The name and value of its dimension; a total has no dimension.
    pub dimension: Option<(&'static str, String)>,
    /// The time in milliseconds since the Unix epoch. CloudWatch accepts data of the last two
    /// weeks.
    pub at_ms: u64,
    /// The storage resolution in seconds: 60, or 1 for high-resolution metrics.
    pub resolution_s: i32,
    /// The values: 1 to 150 distinct, finite ones, each with the number of its occurrences.
    pub values: Vec<(f64, u64)>,
}

/// The reason why data were not put. The text is one line for a person.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PutError {
    /// CloudWatch refuses these data, and a retry would not help.
    #[error("{0}")]
    Refused(String),
    /// A retry may succeed: no response, a throttle, credentials, permissions.
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
    /// Creates a client; the first call connects. `namespace` must not begin with `AWS/`. Requests
    /// of 10 KB and more are compressed, which is the SDK's default;
    /// `AWS_DISABLE_REQUEST_COMPRESSION` turns it off.
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

    /// Splits the data, in order, into parts that `put` can send.
    pub fn parts(data: Vec<Datum>) -> Vec<Vec<Datum>> {
        chunk::chunks(data)
    }

    /// Sends one part, within 10 s. After a failure, CloudWatch may still have received it.
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

/// Whether CloudWatch refuses the data themselves. False for problems that an operator can fix
/// while the process runs: a permission, a policy, the address of an endpoint.
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
    let dimension = datum
        .dimension
        .as_ref()
        .map(|(name, value)| Dimension::builder().name(*name).value(plain(value)).build());
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

/// Converts a name to a valid dimension value: printable ASCII that does not begin with a colon.
/// CloudWatch would refuse the whole request because of one invalid character.
fn plain(name: &str) -> String {
    let plain: String = name
        .chars()
        .take(LONGEST_NAME)
        .map(|c: char| {
            if c.is_ascii_graphic() || c == ' ' {
                c
            } else {
                '_'
            }
        })
        .collect();
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
        let values =
            (0..values).map(|number| (f64::from(u32::try_from(number).expect("small")) + 0.5, 3));
        Datum {
            name: "Duration",
            unit: "Milliseconds",
            dimension: Some(("Queue", "sqs:orders".into())),
            at_ms: 1_700_000_000_000,
            resolution_s: 60,
            values: values.collect(),
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
