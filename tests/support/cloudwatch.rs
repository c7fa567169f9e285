//! What MiniStack's CloudWatch holds, asked for in its JSON protocol. Knows no metric of the
//! program.

use crate::http;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// One metric and all that was published of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    /// Such as `Messages`.
    pub name: String,
    /// Sorted by name; none for a total.
    pub dimensions: BTreeMap<String, String>,
    /// How many values there were.
    pub count: f64,
    /// Their sum.
    pub sum: f64,
    /// The smallest; without dimensions, of all that have the name.
    pub least: f64,
    /// The greatest; likewise.
    pub most: f64,
}

/// A CloudWatch.
#[derive(Debug, Clone)]
pub struct CloudWatch {
    url: String,
}

impl CloudWatch {
    /// Calls nothing yet.
    pub fn at(endpoint_url: &str) -> Self {
        Self {
            url: endpoint_url.to_owned(),
        }
    }

    fn request(&self, action: &str, body: &Value) -> Value {
        let headers = [
            ("Content-Type", "application/x-amz-json-1.0"),
            (
                "X-Amz-Target",
                &format!("GraniteServiceVersion20100801.{action}"),
            ),
            (
                "Authorization",
                "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/monitoring/aws4_request, \
                 SignedHeaders=host, Signature=none",
            ),
        ];
        let answer = http::post(&self.url, &headers, &body.to_string());
        assert_eq!(answer.status, 200, "{action}: {}", answer.body);
        serde_json::from_str(&answer.body).unwrap_or_else(|e| panic!("{e}: {}", answer.body))
    }

    /// All metrics of a namespace.
    pub fn metrics(&self, namespace: &str) -> Vec<Metric> {
        let listed = self.request("ListMetrics", &json!({"Namespace": namespace}));
        let listed = listed["Metrics"].as_array().cloned().unwrap_or_default();
        let mut metrics: Vec<Metric> = listed
            .iter()
            .map(|metric| self.metric(namespace, metric))
            .collect();
        // Asked for no dimension, MiniStack answers for all of them together; AWS does not.
        let (with, without) = metrics
            .iter()
            .cloned()
            .partition::<Vec<Metric>, _>(|metric| !metric.dimensions.is_empty());
        for total in without {
            let same = |metric: &&Metric| metric.name == total.name;
            let at = metrics.iter().position(|metric| *metric == total);
            let total = &mut metrics[at.expect("it is one of them")];
            total.count -= with
                .iter()
                .filter(same)
                .map(|metric| metric.count)
                .sum::<f64>();
            total.sum -= with
                .iter()
                .filter(same)
                .map(|metric| metric.sum)
                .sum::<f64>();
        }
        metrics
    }

    fn metric(&self, namespace: &str, metric: &Value) -> Metric {
        let dimensions = metric["Dimensions"].as_array().cloned().unwrap_or_default();
        // One period holds all of it, however the clock stands when the test runs.
        let found = self.request(
            "GetMetricStatistics",
            &json!({
                "Namespace": namespace,
                "MetricName": metric["MetricName"],
                "Dimensions": dimensions,
                "StartTime": 0,
                "EndTime": 4_000_000_000_u64,
                "Period": 86_400,
                "Statistics": ["SampleCount", "Sum", "Minimum", "Maximum"],
            }),
        );
        let points = found["Datapoints"].as_array().cloned().unwrap_or_default();
        let all = |name: &str| -> Vec<f64> {
            let value = |point: &Value| point[name].as_f64();
            points.iter().filter_map(value).collect()
        };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let pair = |d: &Value| (text(&d["Name"]), text(&d["Value"]));
        Metric {
            name: text(&metric["MetricName"]),
            dimensions: dimensions.iter().map(pair).collect(),
            count: all("SampleCount").iter().sum(),
            sum: all("Sum").iter().sum(),
            least: all("Minimum").into_iter().fold(f64::INFINITY, f64::min),
            most: all("Maximum").into_iter().fold(f64::NEG_INFINITY, f64::max),
        }
    }

    /// The sum of one metric: for these dimensions exactly.
    pub fn sum(&self, namespace: &str, name: &str, dimensions: &[(&str, &str)]) -> f64 {
        let wanted = |metric: &Metric| {
            let own = metric.dimensions.iter();
            let own: Vec<(&str, &str)> = own.map(|(n, v)| (n.as_str(), v.as_str())).collect();
            metric.name == name && own == dimensions
        };
        let metrics = self.metrics(namespace).into_iter().filter(wanted);
        metrics.map(|metric| metric.sum).sum()
    }

    /// All metrics of a namespace, once they are as wanted; asks again and again, since CloudWatch
    /// tells nobody.
    pub async fn wait_until(
        &self,
        namespace: &str,
        wanted: impl Fn(&[Metric]) -> bool,
    ) -> Vec<Metric> {
        let mut metrics = Vec::new();
        let asking = async {
            loop {
                metrics = self.metrics(namespace);
                if wanted(&metrics) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        let came = tokio::time::timeout(crate::PATIENCE, asking).await.is_ok();
        assert!(came, "{namespace} holds {metrics:?}");
        metrics
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::servers::MiniStack;

    #[test]
    fn published_metrics_can_be_read() {
        let cloudwatch = CloudWatch::at(&MiniStack::shared().url());
        let namespace = crate::sqs::SqsServer::fresh_name("Test");
        let queue = json!([{"Name": "Queue", "Value": "q"}]);
        cloudwatch.request(
            "PutMetricData",
            &json!({"Namespace": namespace, "MetricData": [
                {"MetricName": "Messages", "Dimensions": queue, "Value": 5.0},
                {"MetricName": "Duration", "Dimensions": queue, "Value": 9.0},
                {"MetricName": "Duration", "Dimensions": [], "Values": [1.0, 3.0], "Counts": [2.0, 1.0]},
            ]}),
        );
        let metrics = cloudwatch.metrics(&namespace);
        assert_eq!(metrics.len(), 3, "{metrics:?}");
        assert!((cloudwatch.sum(&namespace, "Messages", &[("Queue", "q")]) - 5.0).abs() < 1e-9);
        let duration = |queues: usize| {
            let wanted =
                |metric: &&Metric| metric.name == "Duration" && metric.dimensions.len() == queues;
            let metric = metrics.iter().find(wanted).expect("it was published");
            (metric.count, metric.sum)
        };
        assert_eq!((duration(0), duration(1)), ((3.0, 5.0), (1.0, 9.0)));
    }
}
