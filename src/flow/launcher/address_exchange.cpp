#include "flow/launcher/address_exchange.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <mutex>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/socket.h>
#include <unistd.h>

#include <amalgam/core/detail/no_thread.hpp>
#include <amalgam/core/unique_fd.hpp>
#include <amalgam/fabric/temporary_key.hpp>

#include "flow/launcher/control.hpp"
#include "flow/launcher/pmix.hpp"
#include "flow/launcher/rank_message.hpp"
#include "flow/launcher/run_keys.hpp"
#include "flow/status/status_codec.hpp"

namespace amalgam::detail {
namespace {

/// How this process joined a run, or nullptr. It can join only once: neither a launcher nor PMIx
/// can match several runs of one process with those of another.
std::atomic<const char*> has_met_by{nullptr};

std::size_t read_number(const char* variable, std::string_view text) {
    std::size_t number = 0;
    auto [end, wrong] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (wrong == std::errc{} && end == text.data() + text.size()) return number;
    throw error(errc::invalid,
                fmt::format("{} is \"{}\", expected a number from 0; example: 0", variable, text));
}

control_message message_with(const temporary_key& own) {
    control_message mine;
    mine.what = control_message::kind::key;
    mine.keys = {to_text(own.fingerprint())};
    return mine;
}

std::uint64_t milliseconds_of(std::chrono::milliseconds limit) {
    return static_cast<std::uint64_t>(std::max(limit, std::chrono::milliseconds(1)).count());
}

/// This process's command line, words separated by spaces.
std::string own_command() {
    std::ifstream file("/proc/self/cmdline", std::ios::binary);
    std::string command(std::istreambuf_iterator<char>(file), {});
    for (char& c : command)
        if (c == '\0') c = ' ';
    while (command.ends_with(' '))
        command.pop_back();
    return command;
}

/// Started by `amalgam run`, which knows every process.
class launched final : public address_exchange {
public:
    explicit launched(int fd) : fd_(fd), line_(fd) {
        // Programs started by this one must not use the control line.
        ::unsetenv(control_variable);
        ::fcntl(fd, F_SETFD, FD_CLOEXEC);
        auto welcome = line_.receive();
        if (!welcome || welcome->what != control_message::kind::welcome)
            throw error(errc::invalid,
                        fmt::format("{} is set, but no launcher answers there; start the program "
                                    "with amalgam run, or unset it",
                                    control_variable));
        config_ = parse_flow_config(welcome->config).value();
        group_ = welcome->group;
        replica_ = welcome->replica;
        report_interval_ = std::chrono::milliseconds(welcome->report_ms);
        checkpoints_ = {welcome->checkpoints, welcome->checkpoint, welcome->restart};
    }

    ~launched() override {
        done_ = true;
        ::shutdown(fd_.get(), SHUT_RDWR);
        if (watch_.joinable()) watch_.join();
    }

    std::shared_ptr<const credentials> meet_keys(std::chrono::milliseconds limit) override {
        if (!makes_keys(config_)) return nullptr;
        const temporary_key own(label());
        control_message mine = message_with(own);
        mine.join_ms = milliseconds_of(limit);
        send(mine);
        const auto all = line_.receive();
        if (!all || all->what != control_message::kind::keys) ended_before_the_start();
        // In the order of the config's processes.
        if (all->keys.size() != process_count(config_)) ended_before_the_start();
        std::vector<key_fingerprint> keys;
        for (const std::string& each : all->keys) {
            const auto [group, replica] = nth_process(config_, keys.size());
            keys_.resize(group + 1);
            keys.push_back(keys_[group].emplace_back(parse_key_fingerprint(each)));
        }
        return own.trusting(std::move(keys));
    }

    std::vector<std::vector<std::string>> meet(const std::string& own_address,
                                               const std::string& graph,
                                               std::chrono::milliseconds limit) override {
        control_message ready;
        ready.what = control_message::kind::ready;
        ready.address = own_address;
        ready.graph = graph;
        ready.join_ms = milliseconds_of(limit);
        ready.answers_queries = true;
        send(ready);
        auto go = line_.receive();
        if (!go || go->what != control_message::kind::go) ended_before_the_start();
        try {
            watch_ = std::thread([this] { end_with_the_launcher(); });
        } catch (const std::system_error& why) {
            throw no_thread("that listens to the launcher", why);
        }
        return go->addresses;
    }

    bool tell_refusal(const std::string& sentence) override {
        control_message refused;
        refused.what = control_message::kind::refused;
        refused.sentence = sentence;
        return send(refused);
    }

    bool report_failure(const run_failure& why) override {
        control_message failed;
        failed.what = control_message::kind::failed;
        failed.sentence = why.what.sentence;
        failed.because_of_other = why.because_of_other;
        return send(failed);
    }

    void on_checkpoint(std::function<void(std::uint64_t)> begin) override {
        const std::lock_guard hold(checkpoint_lock_);
        begin_checkpoint_ = std::move(begin);
    }
    void tell_saved(std::uint64_t number, const result<void>& written) override {
        control_message saved;
        saved.what = control_message::kind::saved;
        saved.checkpoint = number;
        if (!written) saved.sentence = written.sentence();
        send(saved);
    }

    std::chrono::milliseconds report_interval() const override { return report_interval_; }
    void tell_report(const run_report& report) override {
        if (report_interval_.count() == 0) return;
        control_message so_far;
        so_far.what = control_message::kind::report;
        so_far.report = report.json();
        send(so_far);
    }
    void tell_status(const current_status& what) override {
        control_message so_far;
        so_far.what = control_message::kind::report;
        so_far.report = what.report.json();
        so_far.metrics = encode_metrics(what.metrics);
        so_far.drawing = what.drawing;
        if (what.ults) so_far.ults = encode_ults(*what.ults);
        so_far.answers_queries = true;
        send(so_far);
    }
    wake next_wake(const std::stop_token& stop) override {
        std::unique_lock hold(queries_lock_);
        const auto asked = [this] { return queries_ != answered_; };
        const bool queried = report_interval_.count() == 0
                                 ? queried_.wait(hold, stop, asked)
                                 : queried_.wait_for(hold, stop, report_interval_, asked);
        if (stop.stop_requested()) return wake::never;
        if (!queried) return wake::to_report;
        answered_ = queries_;
        return wake::to_tell_status;
    }
    bool take_ults_asked() override {
        const std::lock_guard hold(queries_lock_);
        return std::exchange(ults_asked_, false);
    }
    bool status_was_asked() const override {
        const std::lock_guard hold(queries_lock_);
        return queries_ != 0;
    }

private:
    [[noreturn]] static void ended_before_the_start() {
        throw error(errc::disconnected, "the launcher ended the run before it started");
    }
    bool send(const control_message& message) {
        std::lock_guard hold(send_lock_);
        return line_.send(message);
    }
    /// Works also if a script is between this process and the launcher.
    void end_with_the_launcher() {
        while (const auto message = line_.receive()) {
            if (message->what == control_message::kind::checkpoint) {
                const std::lock_guard hold(checkpoint_lock_);
                if (begin_checkpoint_) begin_checkpoint_(message->checkpoint);
            }
            if (message->what != control_message::kind::status_query) continue;
            const std::lock_guard hold(queries_lock_);
            ++queries_;
            ults_asked_ = ults_asked_ || message->asks_ults;
            queried_.notify_one();
        }
        if (done_) return;
        std::fprintf(stderr, "%s: the launcher is gone; stopped\n", group_.c_str());
        ::_exit(1);
    }

    unique_fd fd_;
    control_line line_;
    std::mutex send_lock_;
    std::chrono::milliseconds report_interval_{0};
    std::atomic<bool> done_{false};
    mutable std::mutex queries_lock_;
    std::condition_variable_any queried_;
    std::uint64_t queries_ = 0;  // Asked for; `answered_` of them answered, or about to be.
    std::uint64_t answered_ = 0;
    bool ults_asked_ = false;
    std::mutex checkpoint_lock_;
    std::function<void(std::uint64_t)> begin_checkpoint_;
    std::thread watch_;
};

/// This process's place according to the variables; shared by all variants without a launcher.
class of_config : public address_exchange {
public:
    of_config(flow_config config, std::string group, std::size_t replica) {
        config_ = std::move(config);
        group_ = std::move(group);
        replica_ = replica;
    }
    bool report_failure(const run_failure&) override { return false; }
};

/// Started by hand, on any machine: the addresses are those of the config.
class by_hand final : public of_config {
public:
    using of_config::of_config;

    /// There is nobody to exchange them: endpoints name credentials of the user's.
    std::shared_ptr<const credentials> meet_keys(std::chrono::milliseconds) override {
        return nullptr;
    }
    std::vector<std::vector<std::string>> meet(const std::string&, const std::string&,
                                               std::chrono::milliseconds) override {
        std::vector<std::vector<std::string>> all;
        for (const group_config& one : config_.groups)
            all.push_back(one.endpoints);
        return all;
    }
    bool tell_refusal(const std::string&) override { return false; }
};

/// Lets another rank report first: that ends the job, as mpirun and srun then end the other ranks
/// silently.
void let_another_tell() {
    std::this_thread::sleep_for(std::chrono::seconds(2));
}

/// The first rank reports what all ranks find out alike.
[[noreturn]] void refuse_as(std::size_t rank, const std::string& sentence) {
    if (rank == 0) throw error(errc::invalid, sentence);
    let_another_tell();
    throw told_error(errc::invalid, sentence);
}

/// A rank of an mpirun or srun. Ranks tell each other their addresses.
class by_rank final : public of_config {
public:
    by_rank(flow_config config, std::string group, std::size_t replica, job_rank here)
        : of_config(std::move(config), std::move(group), replica), here_(here) {}

    std::shared_ptr<const credentials> meet_keys(std::chrono::milliseconds) override {
        if (!makes_keys(config_)) return nullptr;
        const temporary_key own(label());
        std::vector<key_fingerprint> keys;
        for (const group_config& one : config_.groups)
            keys_.emplace_back(one.replicas());
        for (const rank_message& one : exchange(message_with(own))) {
            end_if_refused(one.said);
            keys.push_back(parse_key_fingerprint(one.said.keys.size() == 1 ? one.said.keys.front()
                                                                           : std::string()));
            keys_[one.group][one.replica] = keys.back();
        }
        return own.trusting(std::move(keys));
    }

    std::vector<std::vector<std::string>> meet(const std::string& own_address,
                                               const std::string& graph,
                                               std::chrono::milliseconds) override {
        control_message mine;
        mine.what = control_message::kind::ready;
        mine.address = own_address;
        mine.graph = graph;
        std::vector<std::vector<std::string>> addresses;
        for (const group_config& one : config_.groups)
            addresses.emplace_back(one.replicas());
        has_met_ = true;
        const auto all = exchange(mine);
        for (const rank_message& one : all)
            end_if_refused(one.said);
        for (const rank_message& one : all) {
            if (one.said.graph != all.front().said.graph)
                refuse_as(here_.rank,
                          fmt::format("groups {} and {} built different graphs, expected the same "
                                      "nodes, pipelines and groups in every process",
                                      label_of(all.front()), label_of(one)));
            std::string& address = addresses[one.group][one.replica];
            if (!address.empty())
                refuse_as(here_.rank,
                          fmt::format("two processes claim to be {}, expected one for each of {}",
                                      label_of(one), list_processes(config_)));
            address = one.said.address.empty() ? "-" : one.said.address;
        }
        return addresses;
    }

    bool tell_refusal(const std::string& sentence) override {
        if (has_met_ || is_over_) return false;  // Too late: this rank reports it.
        is_over_ = true;
        control_message refused;
        refused.what = control_message::kind::refused;
        refused.sentence = sentence;
        const auto all = exchange(refused);
        const auto first = std::find_if(all.begin(), all.end(), [](const rank_message& one) {
            return one.said.what == control_message::kind::refused;
        });
        if (static_cast<std::size_t>(first - all.begin()) == here_.rank) return false;
        let_another_tell();
        return true;
    }

private:
    std::string label_of(const rank_message& one) const {
        return process_label(config_.groups[one.group], one.replica);
    }

    void end_if_refused(const control_message& said) {
        if (said.what != control_message::kind::refused) return;
        is_over_ = true;
        let_another_tell();
        throw told_error(errc::invalid, said.sentence);
    }

    /// The messages of all ranks, in order.
    std::vector<rank_message> exchange(const control_message& mine) {
        std::vector<rank_message> all;
        for (const std::string& text :
             pmix_.all_say(encode_rank_message(group_, replica_, mine), here_.size))
            all.push_back(decode_rank_message(text, config_).value());
        return all;
    }

    pmix_exchange pmix_;
    job_rank here_;
    bool has_met_ = false;  ///< Addresses were exchanged, the last that ranks do together.
    bool is_over_ = false;  ///< A rank refused.
};

/// The first group with an endpoint that is not known in advance, and that endpoint.
std::optional<std::pair<std::string, std::string>> unknown_endpoint(const flow_config& config) {
    for (const group_config& one : config.groups)
        for (const std::string& endpoint : one.endpoints)
            if (!has_fixed_address(endpoint)) return {{one.name, endpoint}};
    return std::nullopt;
}

/// Without a launcher. `origin` names the config in messages.
std::unique_ptr<address_exchange> address_exchange_of_config(flow_config config,
                                                             const std::string& origin) {
    const job_rank here = job_rank_from_environment();
    const char* named = std::getenv("AMALGAM_GROUP");
    std::string group;
    std::size_t replica = 0;
    if (named != nullptr) {
        group = named;
        const group_config* mine = config.find(group);
        if (mine == nullptr)
            throw error(errc::invalid, fmt::format("AMALGAM_GROUP is \"{}\", expected a group of "
                                                   "{}; example: {}",
                                                   group, origin, config.groups.front().name));
        if (const char* text = std::getenv("AMALGAM_REPLICA"))
            replica = read_number("AMALGAM_REPLICA", text);
        if (replica >= mine->replicas())
            throw error(errc::invalid, fmt::format("AMALGAM_REPLICA is {}, but group {} has {} "
                                                   "processes, expected a number below that",
                                                   replica, group, mine->replicas()));
    } else if (*here.starter != '\0') {
        check_rank_count(here, config, origin);
        const auto [index, nth] = nth_process(config, here.rank);
        group = config.groups[index].name;
        replica = nth;
    } else {
        throw error(errc::invalid,
                    "AMALGAM_CONFIG is set without AMALGAM_GROUP, expected the group of this "
                    "process; example: AMALGAM_GROUP=G1");
    }

    // Ranks tell each other their keys as they do their addresses.
    const bool can_meet = *here.starter != '\0' && pmix_exchange::is_here();
    if (can_meet) config = with_keys(std::move(config));
    const auto unknown = unknown_endpoint(config);
    if (!unknown && !(can_meet && makes_keys(config)))
        return std::make_unique<by_hand>(std::move(config), std::move(group), replica);
    if (can_meet) {
        check_rank_count(here, config, origin);
        has_met_by = here.starter;
        return std::make_unique<by_rank>(std::move(config), std::move(group), replica, here);
    }
    throw error(errc::invalid,
                fmt::format("{}: groups.{}.endpoint is \"{}\", which is not known in advance, "
                            "expected a fixed address, or a start by amalgam run, mpirun or srun "
                            "--mpi=pmix; example: \"tcp://127.0.0.1:7000\"",
                            origin, unknown->first, unknown->second));
}

}  // namespace

std::size_t process_count(const flow_config& config) {
    std::size_t count = 0;
    for (const group_config& one : config.groups)
        count += one.replicas();
    return count;
}

std::pair<std::size_t, std::size_t> nth_process(const flow_config& config, std::size_t n) {
    std::size_t group = 0;
    while (n >= config.groups[group].replicas())
        n -= config.groups[group++].replicas();
    return {group, n};
}

std::string list_processes(const flow_config& config) {
    std::vector<std::string> labels;
    for (const group_config& group : config.groups)
        for (std::size_t i = 0; i < group.replicas(); ++i)
            labels.push_back(process_label(group, i));
    return fmt::format("{} ({})", labels.size(), fmt::join(labels, ", "));
}

void check_rank_count(const job_rank& here, const flow_config& config, const std::string& origin) {
    if (here.size == process_count(config)) return;
    const bool slurm = std::string_view(here.starter) == "srun";
    const std::string sentence = fmt::format(
        "{} started {} process{}, but {} has {}, expected the same number; example: {} -n {} {}",
        here.starter, here.size, here.size == 1 ? "" : "es", origin, list_processes(config),
        slurm ? "srun --mpi=pmix -K" : here.starter, process_count(config), own_command());
    refuse_as(here.rank, sentence);
}

std::unique_ptr<address_exchange> address_exchange_from_environment() {
    if (const char* control = std::getenv(control_variable)) {
        has_met_by = "amalgam run";
        return std::make_unique<launched>(static_cast<int>(read_number(control_variable, control)));
    }
    if (const char* starter = has_met_by)
        throw error(
            errc::invalid,
            fmt::format("a graph was run a second time in a process that {} started, expected one "
                        "run per process; put everything into one graph, or start {} again",
                        starter, starter));
    const char* config = std::getenv("AMALGAM_CONFIG");
    const char* group = std::getenv("AMALGAM_GROUP");
    if (config == nullptr && group == nullptr) return nullptr;
    if (config == nullptr)
        throw error(errc::invalid,
                    fmt::format("AMALGAM_GROUP is \"{}\" without AMALGAM_CONFIG, expected both, or "
                                "a start by amalgam run, where each process runs one graph once",
                                group));
    if (std::string_view(config).starts_with('{'))
        return address_exchange_of_config(parse_flow_config(config, "AMALGAM_CONFIG").value(),
                                          "AMALGAM_CONFIG");
    return address_exchange_of_config(load_flow_config(config).value(), config);
}

}  // namespace amalgam::detail
