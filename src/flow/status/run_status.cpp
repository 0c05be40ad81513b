#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <amalgam/core/detail/text.hpp>
#include <amalgam/core/merged_metrics.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/core/unique_fd.hpp>
#include <amalgam/flow/run_status.hpp>
#include <amalgam/rpc/archive.hpp>

#include "flow/limits.hpp"
#include "flow/status/run_socket.hpp"
#include "flow/status/status_codec.hpp"

namespace amalgam {

namespace detail {
namespace {

constexpr std::string_view greeting = "amalgam run status 1\n";
constexpr std::string_view ults_greeting = "amalgam run ults 1\n";
constexpr std::string_view ults_front = "ults ";
constexpr std::string_view name_front = "amalgam-run-";

/// One process as it travels: its report as JSON, which has its own parser.
struct process_on_wire {
    std::string label, where, address, report;
    bool running = false, answered = false;
    metric_snapshot metrics;

    template <typename Archive>
    void serialize(Archive& a) {
        a(label, where, address, report, running, answered, metrics);
    }
};

std::string_view text_of(const_bytes bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

const_bytes bytes_of(std::string_view text) {
    return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

/// For a control message.
template <typename What>
std::string encode_as_text(const What& all) {
    body into;
    archive_writer writer(into);
    writer(all);
    return to_hex(into.bytes());
}

template <typename What>
std::optional<What> decode_text(std::string_view text) {
    std::vector<std::byte> bytes(text.size() / 2);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        const int high = hex_digit(text[2 * i]), low = hex_digit(text[2 * i + 1]);
        if (high < 0 || low < 0) return std::nullopt;
        bytes[i] = static_cast<std::byte>(high * 16 + low);
    }
    archive_reader reader(bytes);
    What all;
    reader(all);
    if (!reader.ok() || reader.remaining() != 0 || text.size() % 2 != 0) return std::nullopt;
    return all;
}

constexpr std::string_view other_version =
    "the launcher of the run does not answer as this version of amalgam expects; use the amalgam "
    "that started the run";

}  // namespace

std::string encode_metrics(const metric_snapshot& all) {
    return encode_as_text(all);
}

std::optional<metric_snapshot> decode_metrics(std::string_view text) {
    return decode_text<metric_snapshot>(text);
}

std::string encode_ults(const ult_report& all) {
    return encode_as_text(all);
}

std::optional<ult_report> decode_ults(std::string_view text) {
    return decode_text<ult_report>(text);
}

std::string ults_question(std::string_view process) {
    return fmt::format("{}{}", ults_front, process);
}

std::optional<std::string> process_in_question(std::string_view question) {
    if (!question.starts_with(ults_front)) return std::nullopt;
    return std::string(question.substr(ults_front.size()));
}

std::string encode_told_ults(const result<ult_report>& told) {
    body into;
    archive_writer writer(into);
    const std::string why(told ? std::string_view() : told.sentence());
    writer(why, told ? told.value() : ult_report());
    return fmt::format("{}{}", ults_greeting, text_of(into.bytes()));
}

result<ult_report> decode_told_ults(std::string_view bytes) {
    if (!bytes.starts_with(ults_greeting)) return {errc::invalid, std::string(other_version)};
    const std::string aligned(bytes.substr(ults_greeting.size()));
    archive_reader reader(bytes_of(aligned));
    std::string why;
    ult_report all;
    reader(why, all);
    if (!reader.ok())
        return {errc::invalid,
                fmt::format("the launcher of the run sent a malformed answer ({})", reader.why())};
    if (!why.empty()) return {errc::closed, why};
    return all;
}

std::string encode_status(const run_status& status) {
    std::vector<process_on_wire> processes;
    for (const process_status& each : status.processes)
        processes.push_back({each.label, each.where, each.address, each.report.json(), each.running,
                             each.answered, each.metrics});
    body into;
    archive_writer writer(into);
    writer(status.launcher, status.command, status.seconds, status.graph, processes);
    return fmt::format("{}{}", greeting, text_of(into.bytes()));
}

result<run_status> decode_status(std::string_view bytes) {
    if (!bytes.starts_with(greeting)) return {errc::invalid, std::string(other_version)};
    const std::string aligned(bytes.substr(greeting.size()));
    archive_reader reader(bytes_of(aligned));
    run_status status;
    std::vector<process_on_wire> processes;
    reader(status.launcher, status.command, status.seconds, status.graph, processes);
    if (!reader.ok())
        return {errc::invalid,
                fmt::format("the launcher of the run sent a malformed answer ({})", reader.why())};
    for (process_on_wire& each : processes) {
        result<run_report> report = parse_run_report(each.report);
        if (!report) return {errc::invalid, std::string(report.sentence())};
        status.processes.push_back({.label = std::move(each.label),
                                    .where = std::move(each.where),
                                    .address = std::move(each.address),
                                    .running = each.running,
                                    .answered = each.answered,
                                    .report = std::move(report).value(),
                                    .metrics = std::move(each.metrics)});
    }
    return status;
}

std::string status_socket_name(unsigned user, int launcher) {
    return fmt::format("{}{}-{}", name_front, user, launcher);
}

int launcher_of(std::string_view name, unsigned user) {
    const std::string front = fmt::format("{}{}-", name_front, user);
    if (!name.starts_with(front)) return 0;
    const std::string_view digits = name.substr(front.size());
    int launcher = 0;
    const auto [end, wrong] =
        std::from_chars(digits.data(), digits.data() + digits.size(), launcher);
    return wrong == std::errc{} && end == digits.data() + digits.size() ? launcher : 0;
}

}  // namespace detail

namespace {

using steady = std::chrono::steady_clock;

constexpr std::size_t most_label_bytes = detail::run_socket::most_question_bytes - 16;

/// Connected to the launcher; empty if none of this user's answers to that name. While many others
/// connect, waits until then.
unique_fd connect_to(int launcher, steady::time_point until) {
    const std::string name = detail::status_socket_name(::geteuid(), launcher);
    unique_fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const auto left = std::max<std::chrono::microseconds>(
        std::chrono::duration_cast<std::chrono::microseconds>(until - steady::now()),
        std::chrono::milliseconds(1));  // 0 would be without end.
    const ::timeval limit{left.count() / 1'000'000, left.count() % 1'000'000};
    ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    ::sockaddr_un where{};
    const ::socklen_t size = detail::abstract_address(name, where);
    if (!socket ||
        ::connect(socket.get(), reinterpret_cast<const ::sockaddr*>(&where), size) != 0) {
        const int why = errno;  // EAGAIN: they still wait to be accepted.
        socket.reset();
        errno = why;
        return {};
    }
    // Anybody may listen at any name.
    if (!detail::is_of_this_user(socket.get())) {
        socket.reset();
        errno = EACCES;
        return {};
    }
    ::fcntl(socket.get(), F_SETFL, O_NONBLOCK);
    return socket;
}

int only_run() {
    const std::vector<int> all = list_runs();
    if (all.empty())
        throw error(errc::not_found,
                    "no run of this user was found on this host, expected one that `amalgam run` "
                    "has started");
    if (all.size() > 1)
        throw error(errc::invalid, fmt::format("there are {} runs, expected the process id of one "
                                               "launcher, one of: {}; example: {}",
                                               all.size(), fmt::join(all, ", "), all.front()));
    return all.front();
}

/// Waits until the socket is `ready`; throws at the deadline.
void wait_for(int socket, short ready, steady::time_point until, int launcher) {
    for (;;) {
        const auto left =
            std::chrono::ceil<std::chrono::milliseconds>(until - steady::now()).count();
        ::pollfd look{socket, ready, 0};
        const int found =
            left > 0 ? ::poll(&look, 1, static_cast<int>(std::min<long>(left, 3'600'000))) : 0;
        if (found > 0) return;
        if (found == 0)
            throw error(errc::timed_out,
                        fmt::format("the launcher of the run ({}) does not answer", launcher));
    }
}

}  // namespace

run_report run_status::report() const {
    run_report all;
    for (const process_status& each : processes)
        all.add(each.report);
    return all;
}

metric_snapshot run_status::metrics() const {
    std::vector<metric_part> parts;
    for (const process_status& each : processes) {
        const std::vector<metric_label> process{{"process", each.label}};
        metric_writer state;
        state.add({"amalgam_process_running", "Whether a process of a run has not ended."}, {},
                  each.running ? 1 : 0);
        parts.push_back({process, each.metrics});
        parts.push_back({process, to_metrics(each.report)});
        parts.push_back({process, state.take()});
    }
    return merge_metrics(parts);
}

std::vector<int> list_runs() {
    // Lines end with the name, abstract ones with "@" in front.
    std::ifstream sockets("/proc/net/unix");
    std::vector<int> found;
    for (std::string line; std::getline(sockets, line);) {
        const std::size_t at = line.rfind(" @");
        if (at == std::string::npos) continue;
        const int launcher =
            detail::launcher_of(std::string_view(line).substr(at + 2), ::geteuid());
        if (launcher > 0) found.push_back(launcher);
    }
    // One line for the listening socket, and one for each connection.
    std::sort(found.begin(), found.end());
    found.erase(std::unique(found.begin(), found.end()), found.end());
    // For all: whoever listens at such names, and takes no connection, holds this up once.
    const steady::time_point until = steady::now() + std::chrono::seconds(1);
    std::erase_if(found, [until](int each) { return !connect_to(each, until); });
    return found;
}

namespace {

/// What the launcher answers.
std::string ask(int launcher, std::string_view question, std::chrono::milliseconds timeout) {
    if (launcher == 0) launcher = only_run();
    const steady::time_point until =
        steady::now() + std::min<std::chrono::milliseconds>(timeout, std::chrono::hours(24));
    const unique_fd socket = connect_to(launcher, until);
    if (!socket && errno == EAGAIN)
        throw error(errc::timed_out,
                    fmt::format("the launcher of the run ({}) does not answer, as too many others "
                                "ask it; ask later",
                                launcher));
    if (!socket) {
        throw error(errc::not_found,
                    fmt::format("{} is no run of this user on this host, expected the process id "
                                "of an `amalgam run`; example: amalgam stats --run",
                                launcher));
    }
    (void)::send(socket.get(), question.data(), question.size(), MSG_NOSIGNAL);
    std::string answer;
    std::vector<char> piece(std::size_t{64} << 10);
    for (;;) {
        wait_for(socket.get(), POLLIN, until, launcher);
        const ::ssize_t got = ::recv(socket.get(), piece.data(), piece.size(), 0);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        if (got < 0)
            throw error(errc::disconnected,
                        fmt::format("the launcher of the run ({}) has ended", launcher));
        if (got == 0) break;
        answer.append(piece.data(), static_cast<std::size_t>(got));
        if (answer.size() > detail::limits::max_status_bytes)
            throw error(errc::too_large,
                        fmt::format("the launcher of the run ({}) says more than {} MiB", launcher,
                                    detail::limits::max_status_bytes >> 20));
    }
    if (answer.empty())
        throw error(errc::disconnected,
                    fmt::format("the launcher of the run ({}) has ended", launcher));
    return answer;
}

}  // namespace

run_status read_run(int launcher, std::chrono::milliseconds timeout) {
    return detail::decode_status(ask(launcher, detail::status_question, timeout)).value();
}

ult_report read_run_ults(const std::string& process, int launcher,
                         std::chrono::milliseconds timeout) {
    if (process.empty() || process.size() > most_label_bytes)
        throw error(errc::invalid,
                    "no process is named, expected one as `amalgam top --run` lists "
                    "them; example: G2.1");
    return detail::decode_told_ults(ask(launcher, detail::ults_question(process), timeout)).value();
}

}  // namespace amalgam
