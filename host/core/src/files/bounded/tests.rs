//! Files as they should not be: real pipes, devices, sockets, and files that grow.

use super::*;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::sync::mpsc::channel;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

fn pipe(path: &Path) {
    rustix::fs::mknodat(
        rustix::fs::CWD,
        path,
        FileType::Fifo,
        Mode::RUSR | Mode::WUSR,
        0,
    )
    .expect("a named pipe");
}

#[track_caller]
fn refused(path: &Path, limits: Limits) -> String {
    read(path, limits).expect_err("it is refused").to_string()
}

#[test]
fn regular_file_is_read_whole_through_any_link() {
    let folder = folder();
    let (file, link) = (folder.path().join("file"), folder.path().join("link"));
    symlink(&file, &link).expect("linked");
    let long = vec![7; 3 * usize::try_from(PIECE).expect("small") + 1];
    for contents in [&b""[..], b"x", &long] {
        std::fs::write(&file, contents).expect("written");
        assert_eq!(read(&link, Limits::COMPONENT).expect("read"), contents);
    }
    assert!(matches!(
        read(&folder.path().join("other"), Limits::COMPONENT),
        Err(ReadError::NotFound)
    ));
}

#[test]
fn finding_08_non_regular_file_is_refused_at_once_and_named() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    pipe(&at("pipe"));
    symlink("/dev/zero", at("zero")).expect("linked");
    let _listening = std::os::unix::net::UnixListener::bind(at("socket")).expect("bound");
    for (path, found) in [
        (at("pipe"), "a named pipe where"),
        (at("zero"), "a character device where"),
        (at("socket"), "a socket or device where"),
        (folder.path().to_owned(), "a folder where"),
    ] {
        let why = refused(&path, Limits::COMPONENT);
        assert!(why.starts_with(found), "{why}");
        assert!(why.ends_with("a regular file is wanted"), "{why}");
    }
}

#[test]
fn finding_08_no_more_than_the_limit_is_read() {
    let folder = folder();
    let file = folder.path().join("file");
    std::fs::write(&file, [1; 10]).expect("written");
    assert_eq!(read(&file, Limits::regular(10)).expect("read"), [1; 10]);
    let why = refused(&file, Limits::regular(9));
    assert_eq!(why, "10 bytes or more, and at most 9 are allowed");
    // A terabyte that takes no space.
    let sparse = File::create(&file).expect("made");
    sparse.set_len(1 << 40).expect("set");
    assert!(matches!(
        read(&file, Limits::COMPONENT),
        Err(ReadError::TooLarge { .. })
    ));
    // Of a file that states no size no more is taken either.
    let why = refused(Path::new("/proc/self/maps"), Limits::regular(100));
    assert_eq!(why, "101 bytes or more, and at most 100 are allowed");
}

#[test]
fn finding_08_file_growing_while_read_is_refused_unless_allowed() {
    let folder = folder();
    let file = folder.path().join("file");
    std::fs::write(&file, "begun").expect("written");
    let (stop, stopped) = channel::<()>();
    let grown = file.clone();
    // Faster than anybody reads.
    let growing = std::thread::spawn(move || {
        let mut file = File::options().append(true).open(grown).expect("opened");
        while stopped.try_recv() == Err(mpsc::TryRecvError::Empty) {
            if file.metadata().expect("there").len() < 64 << 20 {
                file.write_all(&[0; 64 << 10]).expect("written");
            } else {
                file.set_len(5).expect("cut");
            }
        }
    });
    let changed = (0..10_000).any(|_| {
        matches!(
            read(&file, Limits::regular(1 << 30)),
            Err(ReadError::Changed)
        )
    });
    let recorded = read(&file, Limits::RECORDING);
    stop.send(()).expect("it runs");
    growing.join().expect("it ended well");
    assert!(changed);
    assert!(recorded.expect("it may grow").starts_with(b"begun"));
}

#[test]
fn pipe_is_read_where_allowed_if_it_has_a_writer() {
    let folder = folder();
    let path = folder.path().join("pipe");
    pipe(&path);
    let why = refused(&path, Limits::BODY);
    assert_eq!(
        why,
        "a pipe without a writer where a regular file or a pipe with a writer is wanted"
    );
    let (read, mut write) = std::io::pipe().expect("a pipe");
    std::thread::spawn(move || {
        write.write_all(&[3; 200_000]).expect("written");
    });
    // As a shell names what `<(command)` makes.
    let named = format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&read));
    let got = super::read(Path::new(&named), Limits::BODY).expect("read");
    assert_eq!(got, vec![3; 200_000]);
}

/// Paths are the process's: each test hangs on different paths, and tests that count all of them
/// cannot run beside each other.
static ALONE: Mutex<()> = Mutex::new(());
const IMPATIENT: Patience = Patience {
    stalled: Duration::from_millis(20),
    whole: LONG,
};
/// Longer than any thread needs to answer.
const PATIENT: Patience = Patience {
    stalled: LONG,
    whole: LONG,
};
const LONG: Duration = Duration::from_secs(3600);

#[test]
fn finding_08_hanging_read_is_abandoned_and_not_restarted_before_it_ends() {
    let _alone = ALONE.lock();
    let path = Path::new("/a file system that does not answer/file");
    let (answer, answered) = channel::<()>();
    let hang = move |_: &Alive| answered.recv().is_ok();
    let first = apart(path, IMPATIENT, hang);
    assert!(matches!(first, Err(ReadError::Stalled(_))), "{first:?}");
    let again = apart(path, IMPATIENT, |_| ());
    assert!(matches!(again, Err(ReadError::StillStalled)), "{again:?}");
    // Others are read meanwhile.
    apart(Path::new("/another/file"), PATIENT, |_| ()).expect("it answers");
    answer.send(()).expect("somebody waits");
    // It ends by itself, and then the path is read as ever.
    while hanging().contains_key(path) {
        std::thread::yield_now();
    }
    apart(path, PATIENT, |_| ()).expect("it answers");
}

#[test]
fn finding_08_abandoned_threads_are_limited() {
    let _alone = ALONE.lock();
    let mut answers = Vec::new();
    let path = |number: usize| PathBuf::from(format!("/hung/{number}"));
    for number in 0..ABANDONED {
        let (answer, answered) = channel::<()>();
        answers.push(answer);
        let hung = apart(&path(number), IMPATIENT, move |_| answered.recv().is_ok());
        assert!(matches!(hung, Err(ReadError::Stalled(_))), "{hung:?}");
    }
    let one_more = apart(&path(ABANDONED), IMPATIENT, |_| ());
    let Err(ReadError::TooManyStalled(ABANDONED)) = one_more else {
        panic!("{one_more:?}");
    };
    drop(answers);
    while (0..ABANDONED).any(|number| hanging().contains_key(&path(number))) {
        std::thread::yield_now();
    }
    apart(&path(ABANDONED), PATIENT, |_| ()).expect("there is room again");
}

#[test]
fn slow_read_with_progress_is_waited_for_up_to_a_limit() {
    let patience = Limits::COMPONENT.patience();
    assert!(patience.lasts(true, STALLED));
    assert!(!patience.lasts(false, STALLED));
    assert!(!patience.lasts(true, WHOLE));
    // Who writes to a pipe may begin late.
    assert_eq!(Limits::BODY.patience().stalled, WHOLE);
}
