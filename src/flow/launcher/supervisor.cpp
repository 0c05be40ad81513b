#include "flow/launcher/supervisor.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <amalgam/core/detail/printable.hpp>
#include <amalgam/fabric/identity.hpp>

#include "flow/launcher/descendants.hpp"
#include "flow/launcher/run_keys.hpp"
#include "flow/limits.hpp"
#include "flow/status/status_codec.hpp"

namespace amalgam::detail {
namespace {

constexpr int not_decided = -1;    // Exit codes are never negative.
constexpr int most_messages = 16;  // Per process and turn.

sigset_t watched_signals() {
    sigset_t set;
    sigemptyset(&set);
    for (int one : {SIGCHLD, SIGINT, SIGTERM, SIGHUP})
        sigaddset(&set, one);
    return set;
}

}  // namespace

supervisor::supervisor(const launch_options& options, std::string program, unique_fd launcher,
                       run_checkpoints& checkpoints)
    : options_(options),
      program_(std::move(program)),
      launcher_(std::move(launcher)),
      report_(options),
      watch_(fmt::format("{}", fmt::join(options.command, " "))),
      checkpoints_(checkpoints),
      makes_keys_(makes_keys(options.config)) {
    sigset_t set = watched_signals();
    signals_.reset(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    if (options.limit.count() > 0) stop_at_ = clock::now() + options.limit;
}

int supervisor::run() {
    try {
        open_page();
    } catch (const error& refused) {
        say(fmt::format("--web: {}", refused.what()));
        show_the_rest();
        return 2;
    }
    try {
        start_all();
        if (page_) page_->start();  // A thread: after the last fork().
    } catch (const error& failed) {
        say(failed.what());
        kill_descendants(limits::kill_limit);
        show_the_rest();
        return 1;
    }
    offer_status();
    try {
        run_until_all_have_ended();
        while (starts_again()) {
            start_over();
            run_until_all_have_ended();
        }
    } catch (const error& failed) {  // No process or descriptor is left to start again.
        say(failed.what());
        exit_code_ = 1;
        stop_now();
        kill_descendants(limits::kill_limit);
    }
    blame();
    check_that_somebody_ran();
    show_report();
    if (exit_code_.value_or(0) != 0) say_that_checkpoint_is_kept();
    if (page_) {
        show_page();
        page_->finish();
    }
    std::size_t left = kill_descendants(limits::kill_limit);
    if (left > 0 && !stopping_)
        say(fmt::format("the groups left {} process{} running; stopped", left,
                        left == 1 ? "" : "es"));
    show_the_rest();
    if (out_.lost_for() != 0 && exit_code_.value_or(0) == 0) {
        say(
            fmt::format("standard output cannot be written completely ({}), expected room for what "
                        "the groups print",
                        std::strerror(out_.lost_for())));
        say_that_checkpoint_is_kept();
        show_the_rest();
        return 1;
    }
    if (exit_code_.value_or(0) == 0 && introduced_) checkpoints_.remove_all();
    return exit_code_.value_or(0);
}

void supervisor::say_that_checkpoint_is_kept() {
    if (checkpoints_.complete() == 0 || !introduced_) return;
    const std::string why = last_said_;
    const std::string kept =
        fmt::format("checkpoint {} is kept: --resume goes on from it", checkpoints_.complete());
    say(kept);
    last_said_ = why + "; " + kept;  // The page shows both.
}

void supervisor::run_until_all_have_ended() {
    while (anything_runs()) {
        wait_for_something();
        take_signals();
        take_page_requests();
        more_messages_ = false;
        for (launched_process& one : processes_) {
            more_messages_ = take_messages(one) || more_messages_;
            read_output(one);
        }
        reap();
        check_that_nobody_left_early();
        share_keys_when_all_have_one();
        ask_for_status();
        introduce_when_all_are_ready();
        check_that_nobody_is_late();
        check_that_the_run_is_not_late();
        if (stopping_ && !killed_ && clock::now() >= kill_at_) stop_now();
        if (page_ && clock::now() >= page_at_) show_page();
        begin_checkpoint_when_due();
        if (const std::string line = report_.next_line(clock::now()); !line.empty()) say(line);
    }
}

/// Whether the run has lost a process, and goes on from a checkpoint.
bool supervisor::starts_again() {
    if (!stopping_ || exit_code_ || restarts_ == options_.restarts ||
        next_stop_ == stop_press::ends_wait)
        return false;
    const launched_process& first = first_to_blame();
    if (!is_lost(first)) return false;
    const std::uint64_t from = checkpoints_.complete();
    if (from == 0 && !options_.restart_from_start) {
        say("the run is not started again: no checkpoint is complete, and --from-start was not "
            "given");
        return false;
    }
    if (end_asked_for_) {
        exit_code_ = end_asked_for_->exit_code;
        say(end_asked_for_->why);
        return false;
    }
    // Of those that have only lost another, the words say whom.
    const std::string why = !first.last_words.empty() ? first.last_words
                            : stopped_by_us(first)
                                ? "it was lost"
                                : "it ended with " + describe_end(first.wait_status);
    const std::string where =
        from == 0 ? std::string("the start") : fmt::format("checkpoint {}", from);
    note_ = fmt::format("group {} ({}): {}; restart {} of {}: all groups go on from {}",
                        first.label, first.where, why, ++restarts_, options_.restarts, where);
    say(note_);
    restart_ = fmt::format("{} of {}, from {}, as group {}: {}", restarts_, options_.restarts,
                           where, first.label, why)
                   .substr(0, limits::max_reason_bytes);
    return true;
}

/// Whether that process is gone for a reason that another one may not meet.
bool supervisor::is_lost(const launched_process& one) const noexcept {
    return one.because_of_other || (one.last_words.empty() && WIFSIGNALED(one.wait_status));
}

/// The children of this fork() are copies of one thread, but others run: until they become the
/// program, they do only what glibc allows then, and no other thread changes the environment.
void supervisor::start_over() {
    kill_descendants(limits::kill_limit);  // What the groups have left.
    show_the_rest();
    checkpoints_.abandon();
    processes_.clear();
    watch_.start_over();
    report_.start_over();
    ended_ = 0;
    shared_keys_ = introduced_ = more_messages_ = stopping_ = killed_ = false;
    ready_by_ = clock::time_point::max();
    start_all();
}

/// Empty: one may begin.
std::string supervisor::why_no_checkpoint() const {
    if (!checkpoints_.are_on()) return "this run has no folder for checkpoints (--checkpoints)";
    if (checkpoints_.is_under_way()) return "a checkpoint is being taken already";
    if (!introduced_) return "the groups have not begun yet";
    const bool all_run = std::all_of(processes_.begin(), processes_.end(),
                                     [](const launched_process& one) { return one.running; });
    if (stopping_ || !all_run) return "the run is about to end";
    return {};
}

void supervisor::begin_checkpoint(bool asked) {
    checkpoint_is_asked_for_ = asked;
    control_message ask;
    ask.what = control_message::kind::checkpoint;
    ask.checkpoint = checkpoints_.begin(clock::now());
    for (launched_process& one : processes_)
        one.talk.send(ask);
}

void supervisor::begin_checkpoint_when_due() {
    if (clock::now() >= checkpoints_.due() && why_no_checkpoint().empty()) begin_checkpoint(false);
}

void supervisor::take_saved(launched_process& from, const control_message& message) {
    if (!checkpoints_.are_on()) return;
    const run_checkpoints::news news =
        checkpoints_.take(number_of(from), message.checkpoint, message.sentence);
    if (news.sentence.empty()) return;
    note_ = news.sentence;
    // Those that come by themselves would fill the screen.
    if (checkpoint_is_asked_for_ || !news.is_complete) say(news.sentence);
    const stop_press was = std::exchange(next_stop_, stop_press::takes_checkpoint);
    if (was != stop_press::ends_wait) return;
    if (news.is_complete) return stop_for_page();
    note_ += "; the run goes on: the next press of stop ends it without one";
    next_stop_ = stop_press::ends_run;
}

/// With checkpoints, takes one first. Asked once more, stops at once.
void supervisor::stop_safely() {
    const bool can_begin = why_no_checkpoint().empty();
    const bool waits_for_one = can_begin || checkpoints_.is_under_way();
    if (next_stop_ != stop_press::takes_checkpoint || !waits_for_one) return stop_for_page();
    if (can_begin) begin_checkpoint(true);
    next_stop_ = stop_press::ends_wait;
    note_ = "a checkpoint is taken, then the run stops; the next press of stop ends it at once";
}

void supervisor::stop_for_page() {
    end_run(128 + SIGTERM, "the stop button of the live page was pressed: stopped all groups");
}

/// For somebody who wants the run to end. One that has lost a process is not started again.
void supervisor::end_run(int exit_code, std::string why) {
    if (stopping_ && !exit_code_)
        end_asked_for_ = {exit_code, std::move(why)};
    else
        stop_the_others(exit_code, std::move(why));
}

void supervisor::start_all() {
    const auto& groups = options_.config.groups;
    for (std::size_t group = 0; group < groups.size(); ++group) {
        const auto& view = options_.view;
        bool shown =
            view.empty() || std::find(view.begin(), view.end(), groups[group].name) != view.end();
        for (std::size_t i = 0; i < groups[group].replicas(); ++i)
            processes_.push_back(start_process(options_, group, i, program_, shown));
    }
    for (const launched_process& one : processes_)
        watch_.add(one.label, one.where);
    control_message welcome;
    welcome.what = control_message::kind::welcome;
    welcome.config = to_json(options_.config);
    welcome.report_ms = report_.interval_ms();
    welcome.checkpoints = checkpoints_.folder();
    welcome.checkpoint = checkpoints_.complete();
    welcome.restart = restart_;
    for (launched_process& one : processes_) {
        welcome.group = groups[one.group].name;
        welcome.replica = one.replica;
        one.talk.send(welcome);
    }
}

/// After all processes were started: a child of fork() should be the copy of one thread.
void supervisor::offer_status() {
    const int launcher = ::getppid();
    socket_.emplace(
        status_socket_name(::geteuid(), launcher), [this, launcher](std::string_view question) {
            if (const auto process = process_in_question(question))
                return encode_told_ults(watch_.query_ults(*process, limits::ults_limit));
            if (question != status_question) return std::string();
            run_status now = watch_.query(limits::status_limit);
            now.launcher = launcher;
            return encode_status(now);
        });
    if (options_.metrics.empty()) return;
    try {
        numbers_.emplace([this] { return watch_.query(limits::status_limit).metrics(); },
                         options_.metrics);
        say(fmt::format("numbers at {}", numbers_->url()));
    } catch (const std::exception& why) {  // Somebody has taken the port meanwhile.
        stop_the_others(1, fmt::format("--metrics: {}; stopped all groups", why.what()));
    }
}

void supervisor::ask_for_status() {
    if (!introduced_) return;  // Until then they wait for other messages.
    for (const run_watch::question& each : watch_.take_asked())
        ask_for_status_of(each);
}

void supervisor::ask_for_status_of(const run_watch::question& what) {
    control_message query;
    query.what = control_message::kind::status_query;
    query.asks_ults = what.ults;
    processes_[what.which].talk.send(query);
}

void supervisor::wait_for_something() {
    std::vector<pollfd> watched{{signals_.get(), POLLIN, 0}, {launcher_.get(), POLLIN, 0}};
    if (introduced_) watched.push_back({watch_.wanted(), POLLIN, 0});
    if (page_) watched.push_back({page_->requests_fd(), POLLIN, 0});
    for (output_queue* queue : {&out_, &err_})
        if (!queue->empty()) watched.push_back({queue->fd(), POLLOUT, 0});
    for (launched_process& one : processes_) {
        if (one.out && !out_.full()) watched.push_back({one.out.get(), POLLIN, 0});
        if (one.err && !err_.full()) watched.push_back({one.err.get(), POLLIN, 0});
        if (one.control) watched.push_back({one.control.get(), POLLIN, 0});
    }
    constexpr std::chrono::milliseconds never{-1};
    const clock::time_point now = clock::now();
    std::chrono::milliseconds timeout = report_.until_next(now, never);
    const auto wake_at = [&](clock::time_point when) {
        const auto left = std::max(std::chrono::ceil<std::chrono::milliseconds>(when - now),
                                   std::chrono::milliseconds(0));
        timeout = timeout == never ? left : std::min(timeout, left);
    };
    if (more_messages_) wake_at(now);
    if (why_no_checkpoint().empty() && checkpoints_.due() != clock::time_point::max())
        wake_at(checkpoints_.due());
    if (page_) wake_at(page_at_);
    if (stopping_ && !killed_) wake_at(kill_at_);
    if (!stopping_ && stop_at_ != clock::time_point::max()) wake_at(stop_at_);
    if (!stopping_ && !introduced_ && ready_by_ != clock::time_point::max()) wake_at(ready_by_);
    constexpr std::chrono::milliseconds longest = std::chrono::hours(24);  // poll() takes an int.
    ::poll(watched.data(), watched.size(), static_cast<int>(std::min(timeout, longest).count()));
    if (watched[1].revents != 0) {  // The launcher was killed: nobody is left to report to.
        kill_descendants(limits::kill_limit);
        ::_exit(128 + SIGKILL);
    }
    for (output_queue* queue : {&out_, &err_})
        for (const pollfd& one : watched)
            if (one.fd == queue->fd() && one.revents != 0) queue->write_some();
}

void supervisor::take_signals() {
    signalfd_siginfo info;
    while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
        if (info.ssi_signo == SIGCHLD) continue;
        int signal = static_cast<int>(info.ssi_signo);
        end_run(128 + signal, fmt::format("{}: stopped all groups", ::strsignal(signal)));
    }
}

/// Takes a few messages, so that a process that sends without end does not delay the others.
/// Returns whether there may be more.
bool supervisor::take_messages(launched_process& from) {
    for (int left = most_messages; from.control && left != 0; --left) {
        bool gone = false;
        const auto message = from.talk.try_receive(gone);
        if (message) {
            take(from, *message);
            continue;
        }
        if (gone) {
            from.control.reset();
            from.talk.forget_descriptor();
        }
        if (const std::string& why = from.talk.nonsense(); gone && !why.empty())
            stop_the_others(
                1, fmt::format("group {} ({}) wrote an invalid message to its control socket "
                               "({:.200}), expected only the library to write to descriptors that "
                               "the program did not open; stopped all groups",
                               from.label, from.where, why));
        return false;
    }
    return static_cast<bool>(from.control);
}

void supervisor::take(launched_process& from, const control_message& message) {
    switch (message.what) {
        case control_message::kind::key:
            take_key(from, message);
            break;
        case control_message::kind::ready:
            if (message.address.size() > limits::max_reason_bytes)
                return stop_the_others(2,
                                       fmt::format("group {} ({}) reported an address of {} bytes, "
                                                   "expected one such as tcp://node7:7000",
                                                   from.label, from.where, message.address.size()));
            from.ready = true;
            from.address = message.address;
            from.graph = message.graph;
            watch_.is_ready(number_of(from), message.address, message.answers_queries);
            wait_for_the_others_of(message.join_ms);
            break;
        case control_message::kind::refused:
            stop_the_others(2, message.sentence.substr(0, limits::max_reason_bytes));
            break;
        case control_message::kind::failed:
            from.last_words = message.sentence.substr(0, limits::max_reason_bytes);
            from.because_of_other = message.because_of_other;
            break;
        case control_message::kind::report:
            report_.take(number_of(from), message.report);
            if (const auto again = watch_.take(number_of(from), message)) ask_for_status_of(*again);
            if (page_)
                if (auto ults = decode_ults(message.ults)) page_->tell_ults(from.label, *ults);
            break;
        case control_message::kind::saved:
            take_saved(from, message);
            break;
        case control_message::kind::checkpoint:
        case control_message::kind::welcome:
        case control_message::kind::keys:
        case control_message::kind::go:
        case control_message::kind::status_query:
            break;  // Only we send these.
    }
}

void supervisor::read_output(launched_process& from) {
    auto read_one = [](unique_fd& source, line_prefixer& lines, output_queue& into) {
        char piece[16384];
        while (source && !into.full()) {
            ssize_t got = ::read(source.get(), piece, sizeof piece);
            if (got > 0) {
                lines.feed({piece, static_cast<std::size_t>(got)}, into);
            } else if (got < 0 && errno == EINTR) {
                continue;
            } else if (got < 0 && errno == EAGAIN) {
                return;
            } else {
                lines.finish(into);
                source.reset();
            }
        }
    };
    read_one(from.out, from.out_lines, out_);
    read_one(from.err, from.err_lines, err_);
}

void supervisor::reap() {
    for (;;) {
        int status = 0;
        pid_t ended = ::waitpid(-1, &status, WNOHANG);
        if (ended <= 0) return;
        auto found = std::find_if(processes_.begin(), processes_.end(),
                                  [ended](const auto& one) { return one.pid == ended; });
        if (found == processes_.end()) continue;  // An adopted orphan.
        // Reads its last messages first. Bounded, since its children may go on writing there.
        for (int left = 64; left != 0 && take_messages(*found); --left) {
        }
        found->running = false;
        found->wait_status = status;
        found->end_order = ++ended_;
        watch_.has_ended(number_of(*found));
        if (checkpoints_.owes(number_of(*found))) {
            checkpoints_.abandon();
            // None can be taken any more.
            if (status == 0 && next_stop_ == stop_press::ends_wait) stop_for_page();
        }
        if (status != 0 && !stopping_) stop_the_others(not_decided, "");
    }
}

void supervisor::check_that_nobody_left_early() {
    if (introduced_ || stopping_) return;
    // Fine unless others wait for it, as with --help.
    bool somebody_waits = std::any_of(processes_.begin(), processes_.end(), [](const auto& one) {
        return one.running && (one.ready || !one.key.empty());
    });
    if (!somebody_waits) return;
    for (const launched_process& one : processes_)
        if (!one.running)
            stop_the_others(1, fmt::format("group {} ({}) ended without running its part of "
                                           "the graph; stopped the others",
                                           one.label, one.where));
}

void supervisor::wait_for_the_others_of(std::uint64_t limit_ms) {
    constexpr std::chrono::milliseconds longest = std::chrono::hours(24 * 365);
    const auto limit =
        std::chrono::milliseconds(std::min(limit_ms, static_cast<std::uint64_t>(longest.count())));
    const clock::time_point until = clock::now() + limit;
    if (limit.count() == 0 || until >= ready_by_) return;
    ready_by_ = until;
    join_limit_ = limit;
}

void supervisor::check_that_nobody_is_late() {
    if (introduced_ || stopping_ || clock::now() < ready_by_) return;
    for (const launched_process& one : processes_)
        if (others_wait_for(one))
            return stop_the_others(
                1, fmt::format("group {} ({}) did not start its part of the graph within {} s, "
                               "expected every process to call run() (run_options::join_limit is "
                               "the limit); stopped the others",
                               one.label, one.where,
                               std::chrono::duration<double>(join_limit_).count()));
}

void supervisor::check_that_the_run_is_not_late() {
    if (stopping_ || clock::now() < stop_at_) return;
    stop_the_others(1,
                    fmt::format("the run has not ended within {} s, its limit; stopped all groups",
                                std::chrono::duration<double>(options_.limit).count()));
}

/// A program that shows its help or its graph runs no graph on purpose; but a caller waiting for
/// results must not take that for success.
void supervisor::check_that_somebody_ran() {
    const char* show = std::getenv("AMALGAM_SHOW");
    if (exit_code_ || introduced_ || options_.config.stand_alone || (show != nullptr && *show != 0))
        return;
    exit_code_ = 1;
    say(
        fmt::format("no group has run its part of the graph, expected a program that calls run() "
                    "or run_main(); \"{}\" ended without",
                    options_.command.front()));
}

void supervisor::take_key(launched_process& from, const control_message& message) {
    try {
        from.key =
            to_text(parse_key_fingerprint(message.keys.size() == 1 ? message.keys.front() : ""));
    } catch (const error& wrong) {
        return stop_the_others(2, fmt::format("group {} ({}) reported no key: {}", from.label,
                                              from.where, wrong.what()));
    }
    wait_for_the_others_of(message.join_ms);
}

void supervisor::share_keys_when_all_have_one() {
    if (!makes_keys_ || shared_keys_ || stopping_) return;
    control_message all;
    all.what = control_message::kind::keys;
    for (const launched_process& one : processes_) {
        if (one.key.empty()) return;
        all.keys.push_back(one.key);
    }
    shared_keys_ = true;
    for (launched_process& one : processes_)
        one.talk.send(all);
}

bool supervisor::others_wait_for(const launched_process& one) const noexcept {
    return makes_keys_ && !shared_keys_ ? one.key.empty() : !one.ready;
}

void supervisor::introduce_when_all_are_ready() {
    if (introduced_ || stopping_) return;
    control_message go;
    go.what = control_message::kind::go;
    go.addresses.resize(options_.config.groups.size());
    for (const launched_process& one : processes_) {
        if (!one.ready) return;
        if (one.graph != processes_.front().graph) {
            stop_the_others(2, fmt::format("groups {} and {} built different graphs, expected the "
                                           "same nodes, pipelines and groups in every process",
                                           processes_.front().label, one.label));
            return;
        }
        go.addresses[one.group].push_back(one.address);
    }
    introduced_ = true;
    for (launched_process& one : processes_)
        one.talk.send(go);
}

void supervisor::stop_the_others(int exit_code, std::string why) {
    if (stopping_) return;
    stopping_ = true;
    kill_at_ = clock::now() + options_.grace;
    if (exit_code != not_decided) {
        exit_code_ = exit_code;
        say(why);
    }
    for (const launched_process& one : processes_)
        if (one.running) ::kill(-one.pid, SIGTERM);
}

void supervisor::stop_now() {
    killed_ = true;
    for (const launched_process& one : processes_)
        if (one.running) ::kill(-one.pid, SIGKILL);
}

bool supervisor::anything_runs() const noexcept {
    return std::any_of(processes_.begin(), processes_.end(),
                       [](const auto& one) { return one.running; });
}

const launched_process& supervisor::first_to_blame() const noexcept {
    // In order: processes that failed on their own account; that ended badly unasked; that only
    // lost another; that we stopped.
    auto guilt = [this](const launched_process& one) {
        if (!one.failed()) return 0;
        if (one.because_of_other) return 2;
        if (!one.last_words.empty()) return 4;
        return stopped_by_us(one) ? 1 : 3;
    };
    return *std::max_element(
        processes_.begin(), processes_.end(), [&guilt](const auto& a, const auto& b) {
            return std::pair(guilt(a), b.end_order) < std::pair(guilt(b), a.end_order);
        });
}

void supervisor::blame() {
    if (!stopping_ || exit_code_) return;
    const launched_process* const first = &first_to_blame();
    const bool cut_short = stopped_by_us(*first);
    exit_code_ = cut_short ? 1 : exit_code_of(first->wait_status);
    std::string how = cut_short ? "failed" : "ended with " + describe_end(first->wait_status);
    std::string words = first->last_words.empty() ? "" : ": " + first->last_words;
    say(fmt::format("group {} ({}) {}{}; stopped the others", first->label, first->where, how,
                    words));
}

bool supervisor::stopped_by_us(const launched_process& one) const noexcept {
    if (!WIFSIGNALED(one.wait_status)) return false;
    int signal = WTERMSIG(one.wait_status);
    return stopping_ && (signal == SIGTERM || (killed_ && signal == SIGKILL));
}

void supervisor::show_the_rest() {
    for (;;) {
        for (launched_process& one : processes_)
            read_output(one);
        if (out_.empty() && err_.empty()) break;
        pollfd watched[2] = {{out_.empty() ? -1 : out_.fd(), POLLOUT, 0},
                             {err_.empty() ? -1 : err_.fd(), POLLOUT, 0}};
        if (::poll(watched, 2, -1) < 0 && errno != EINTR) return;
        if (watched[0].revents != 0) out_.write_some();
        if (watched[1].revents != 0) err_.write_some();
    }
}

void supervisor::show_report() {
    try {
        err_.add(printable(report_.finish()));
    } catch (const error& wrong) {
        say(wrong.what());
        if (!exit_code_) exit_code_ = 1;
    }
}

void supervisor::say(const std::string& sentence) {
    last_said_ = sentence;
    err_.add_line("amalgam run: ", printable(sentence));
}

void supervisor::open_page() {
    if (options_.web.empty()) return;
    page_ = std::make_unique<live_page>(
        options_.web, page_options{.title = fmt::format("{}", fmt::join(options_.command, " ")),
                                   .can_stop = true,
                                   .can_checkpoint = checkpoints_.are_on(),
                                   .tells_ults = true});
    say(fmt::format("the live page of the run is {}", page_->url()));
    last_said_.clear();
    for (output_queue* each : {&out_, &err_})
        each->tell_lines_to([this](std::string_view line) { page_->log(line); });
}

void supervisor::show_page() {
    page_at_ = clock::now() + live_page::interval;
    page_state now;
    for (const launched_process& one : processes_) {
        std::string state = !one.running  ? "ended with " + describe_end(one.wait_status)
                            : introduced_ ? "running"
                                          : "starting";
        now.processes.push_back({.label = one.label,
                                 .where = one.where,
                                 .state = std::move(state),
                                 .running = one.running});
    }
    const bool over = !anything_runs();
    const bool failed = exit_code_.value_or(0) != 0;
    now.state = !over ? (stopping_ ? "stopping" : "running") : failed ? "failed" : "ended";
    now.sentence = stopping_ || over ? last_said_ : note_;
    now.run = report_.all();
    page_->show(now);
}

void supervisor::take_checkpoint_for_page() {
    if (const std::string why = why_no_checkpoint(); !why.empty())
        note_ = fmt::format("no checkpoint was taken: {}", why);
    else
        begin_checkpoint(true);
}

void supervisor::take_page_requests() {
    if (!page_) return;
    for (const page_request& each : page_->take_requests()) {
        if (each.what == page_request::kind::stop)
            stop_safely();
        else if (each.what == page_request::kind::checkpoint)
            take_checkpoint_for_page();
        else if (const auto asked = watch_.ask_ults(each.process); !asked)
            page_->tell_ults(each.process, asked.why());
    }
}

}  // namespace amalgam::detail
