//! The region in the name of a function. Makes no calls.

/// Returns the region of `arn:aws:lambda:REGION:ACCOUNT:function:NAME`, or `None` for other names.
pub fn region_of(function: &str) -> Option<&str> {
    let mut parts = function.split(':');
    let is_arn = parts.next() == Some("arn");
    let is_lambda = parts.nth(1) == Some("lambda");
    let region = parts.next().filter(|region| !region.is_empty());
    if is_arn && is_lambda { region } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_arn_states_a_region() {
        for (function, region) in [
            ("orders", None),
            ("orders:live", None),
            ("123456789012:function:orders", None),
            (
                "arn:aws:lambda:eu-west-1:123456789012:function:orders",
                Some("eu-west-1"),
            ),
            (
                "arn:aws-cn:lambda:cn-north-1:123456789012:function:orders:live",
                Some("cn-north-1"),
            ),
            (
                "arn:aws-iso-b:lambda:us-isob-east-1:123456789012:function:orders",
                Some("us-isob-east-1"),
            ),
            ("arn:aws:sqs:eu-west-1:123456789012:q", None),
            ("arn:aws:lambda::123456789012:function:orders", None),
        ] {
            assert_eq!(region_of(function), region, "{function}");
        }
    }
}
