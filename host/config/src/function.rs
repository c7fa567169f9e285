//! Parses names and patterns of Lambda functions. Makes no calls.

use super::problem::Problem;
use super::section::WrittenValue;
use dispatcher_core::account::is_account_id;

/// The maximum length of a name or qualifier. Lambda's own limits are 64 for a name and 128 for a
/// qualifier; Lambda itself enforces them.
const LONGEST: usize = 140;

/// The unpublished version of a function and its latest published version.
const LATEST: [&str; 2] = ["$LATEST", "$LATEST.PUBLISHED"];

/// The parsed name of a function in the settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FunctionName<'a> {
    /// The partition in an ARN, for example `aws`, `aws-cn` or `aws-us-gov`.
    pub partition: Option<&'a str>,
    /// The region in an ARN.
    pub region: Option<&'a str>,
    /// The account's twelve digits in an ARN or a part of one.
    pub account: Option<&'a str>,
    /// The function's bare name.
    pub name: &'a str,
    /// The alias or version.
    pub qualifier: Option<&'a str>,
}

impl<'a> FunctionName<'a> {
    /// Parses `NAME`, `ACCOUNT:function:NAME` and `arn:aws:lambda:REGION:ACCOUNT:function:NAME`,
    /// each with or without a `:QUALIFIER`. Returns `None` for any other text.
    pub fn parse(text: &'a str) -> Option<Self> {
        let parts: Vec<&str> = text.split(':').collect();
        let (partition, region, account, rest) = match parts.as_slice() {
            [
                "arn",
                partition,
                "lambda",
                region,
                account,
                "function",
                rest @ ..,
            ] => (Some(*partition), Some(*region), Some(*account), rest),
            [account, "function", rest @ ..] if !rest.is_empty() => {
                (None, None, Some(*account), rest)
            }
            rest => (None, None, None, rest),
        };
        let (name, qualifier) = match rest {
            [name] => (*name, None),
            [name, qualifier] => (*name, Some(*qualifier)),
            _ => return None,
        };
        let legal = is_word(name)
            && qualifier.is_none_or(|qualifier| LATEST.contains(&qualifier) || is_word(qualifier))
            && partition.is_none_or(|text| text.starts_with("aws") && text.chars().all(is_small))
            && region.is_none_or(|text| !text.is_empty() && text.chars().all(is_small))
            && account.is_none_or(is_account_id);
        legal.then_some(Self {
            partition,
            region,
            account,
            name,
            qualifier,
        })
    }
}

/// Whether the names of partitions and regions may have the character.
fn is_small(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'
}

fn is_word(text: &str) -> bool {
    (1..=LONGEST).contains(&text.len())
        && text
            .chars()
            .all(|c: char| c.is_ascii_alphanumeric() || "-_".contains(c))
}

/// Checks the name of a function and returns it unchanged.
pub fn read(given: &WrittenValue) -> Result<String, Problem> {
    let text = given.text.trim();
    match FunctionName::parse(text) {
        Some(_) => Ok(text.to_owned()),
        None => {
            let found = format!("`{text}` does not name a Lambda function");
            let wanted = "NAME, NAME:ALIAS, ACCOUNT:function:NAME or \
                          arn:aws:lambda:REGION:ACCOUNT:function:NAME";
            Err(Problem::new(&given.at, found, wanted))
        }
    }
}

/// Checks a pattern of functions and returns it unchanged; `*` matches any characters.
pub fn pattern(given: &WrittenValue) -> Result<String, Problem> {
    let text = given.text.trim();
    let of_lambda = match text.strip_prefix("arn:").map(|rest| rest.split(':').nth(1)) {
        None => true,
        Some(service) => service.is_some_and(|service| service == "lambda" || service == "*"),
    };
    if (1..=256).contains(&text.len())
        && text
            .chars()
            .all(|c: char| c.is_ascii_alphanumeric() || "-_:*$.".contains(c))
        && of_lambda
    {
        Ok(text.to_owned())
    } else {
        let found = format!("`{text}` is not a pattern of Lambda functions");
        let wanted = "a name, NAME:ALIAS or ARN, in which `*` matches any characters";
        Err(Problem::new(&given.at, found, wanted).hint("written like img-*"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_function_name_is_parsed() {
        let plain = FunctionName {
            partition: None,
            region: None,
            account: None,
            name: "my-function",
            qualifier: None,
        };
        let partial = FunctionName {
            account: Some("123456789012"),
            ..plain
        };
        let whole = FunctionName {
            partition: Some("aws-cn"),
            region: Some("cn-north-1"),
            ..partial
        };
        let live = Some("live");
        for (text, wanted) in [
            ("my-function", plain),
            ("123456789012:function:my-function", partial),
            (
                "arn:aws-cn:lambda:cn-north-1:123456789012:function:my-function",
                whole,
            ),
        ] {
            assert_eq!(FunctionName::parse(text), Some(wanted), "{text}");
            let qualified = FunctionName {
                qualifier: live,
                ..wanted
            };
            let text = format!("{text}:live");
            assert_eq!(FunctionName::parse(&text), Some(qualified), "{text}");
        }
        for qualifier in ["$LATEST", "$LATEST.PUBLISHED"] {
            let text = format!("f:{qualifier}");
            let latest = FunctionName::parse(&text).and_then(|function| function.qualifier);
            assert_eq!(latest, Some(qualifier));
        }
        assert!(FunctionName::parse("my:function").is_some());
    }

    #[test]
    fn invalid_function_name_is_refused() {
        for text in [
            "",
            "a b",
            "f:",
            ":f",
            "f:a:b",
            "a/b",
            "f.x",
            "f:$OLDEST",
            "f:$LATEST.OLD",
            "12345:function:f",
            "arn:aws:sqs:eu-west-1:123456789012:q",
            "arn:aws:lambda:eu-west-1:12:function:f",
            "arn:aws:lambda::123456789012:function:f",
            "arn:elsewhere:lambda:eu-west-1:123456789012:function:f",
            "arn:aws:lambda:eu-west-1:123456789012:layer:f",
        ] {
            let problem = read(&WrittenValue::new("--function", text)).expect_err(text);
            assert!(problem.to_string().contains("wanted NAME"), "{problem}");
        }
        assert!(read(&WrittenValue::new("--function", "f".repeat(141))).is_err());
    }

    #[test]
    fn function_patterns_are_names_with_wildcards() {
        for good in [
            "*",
            "img-*",
            "f:live",
            "f:$LATEST.PUBLISHED",
            "*:prod",
            "arn:aws:lambda:*:*:function:a*",
        ] {
            let read = pattern(&WrittenValue::new("--allow-lambda", good));
            assert_eq!(read, Ok(good.to_owned()));
        }
        for bad in [
            "",
            "a b",
            "img?",
            "arn:aws:sqs:eu-west-1:1:q",
            "a/*",
            "arn:",
        ] {
            assert!(
                pattern(&WrittenValue::new("--allow-lambda", bad)).is_err(),
                "{bad}"
            );
        }
    }
}
