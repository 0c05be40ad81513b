#include "flow/rendezvous.hpp"

#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <amalgam/core/unique_fd.hpp>

#include "flow/control.hpp"

namespace amalgam::detail {
namespace {

std::size_t read_number(const char* variable, std::string_view text) {
    std::size_t number = 0;
    auto [end, wrong] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (wrong == std::errc{} && end == text.data() + text.size()) return number;
    throw error(errc::invalid,
                fmt::format("{} is \"{}\", expected a number from 0; example: 0", variable, text));
}

/// Started by `amalgam run`, which knows everybody.
class launched final : public rendezvous {
public:
    explicit launched(int fd) : fd_(fd), line_(fd) {
        // A program that this one starts must not answer in its name.
        ::unsetenv(control_variable);
        ::fcntl(fd, F_SETFD, FD_CLOEXEC);
        auto welcome = line_.receive();
        if (!welcome || welcome->what != control_message::kind::welcome)
            throw error(errc::invalid,
                        fmt::format("{} is set, but no launcher answers there: start the program "
                                    "by amalgam run, or unset it",
                                    control_variable));
        config_ = parse_flow_config(welcome->config).value();
        group_ = welcome->group;
        replica_ = welcome->replica;
    }

    ~launched() override {
        done_ = true;
        ::shutdown(fd_.get(), SHUT_RDWR);
        if (watch_.joinable()) watch_.join();
    }

    std::vector<std::vector<std::string>> meet(const std::string& own_address,
                                               const std::string& graph) override {
        control_message ready;
        ready.what = control_message::kind::ready;
        ready.address = own_address;
        ready.graph = graph;
        line_.send(ready);
        auto go = line_.receive();
        if (!go || go->what != control_message::kind::go)
            throw error(errc::disconnected, "the launcher has ended the run before its start");
        watch_ = std::thread([this] { end_with_the_launcher(); });
        return go->addresses;
    }

    bool tell_refusal(const std::string& sentence) override {
        control_message refused;
        refused.what = control_message::kind::refused;
        refused.sentence = sentence;
        return line_.send(refused);
    }

    bool tell_failure(const run_failure& why) override {
        control_message failed;
        failed.what = control_message::kind::failed;
        failed.sentence = why.what.sentence;
        failed.because_of_other = why.because_of_other;
        return line_.send(failed);
    }

private:
    /// Also when this process is not the launcher's own child: a script may be between.
    void end_with_the_launcher() {
        while (line_.receive()) {
        }
        if (done_) return;
        std::fprintf(stderr, "%s: the launcher is gone; stopped\n", group_.c_str());
        ::_exit(1);
    }

    unique_fd fd_;
    control_line line_;
    std::atomic<bool> done_{false};
    std::thread watch_;
};

/// Started by hand, on whatever machine: addresses are the config's.
class by_hand final : public rendezvous {
public:
    by_hand(const std::string& path, const char* group, const char* replica) {
        config_ = load_flow_config(path).value();
        const group_config* mine = config_.find(group);
        if (mine == nullptr)
            throw error(errc::invalid, fmt::format("AMALGAM_GROUP is \"{}\", expected a group of "
                                                   "{}; example: {}",
                                                   group, path, config_.groups.front().name));
        group_ = group;
        if (replica != nullptr) replica_ = read_number("AMALGAM_REPLICA", replica);
        if (replica_ >= mine->replicas())
            throw error(errc::invalid, fmt::format("AMALGAM_REPLICA is {}, but group {} has {} "
                                                   "processes, expected a number below that",
                                                   replica_, group, mine->replicas()));
        for (const group_config& one : config_.groups)
            for (const std::string& endpoint : one.endpoints)
                if (!has_fixed_address(endpoint))
                    throw error(errc::invalid,
                                fmt::format("{}: groups.{}.endpoint is \"{}\", which nobody knows "
                                            "beforehand, expected a fixed one, or a start by "
                                            "amalgam run; example: \"tcp://127.0.0.1:7000\"",
                                            path, one.name, endpoint));
    }

    std::vector<std::vector<std::string>> meet(const std::string&, const std::string&) override {
        std::vector<std::vector<std::string>> all;
        for (const group_config& one : config_.groups)
            all.push_back(one.endpoints);
        return all;
    }
    bool tell_refusal(const std::string&) override { return false; }
    bool tell_failure(const run_failure&) override { return false; }
};

}  // namespace

std::unique_ptr<rendezvous> rendezvous_from_environment() {
    if (const char* control = std::getenv(control_variable))
        return std::make_unique<launched>(static_cast<int>(read_number(control_variable, control)));
    const char* config = std::getenv("AMALGAM_CONFIG");
    const char* group = std::getenv("AMALGAM_GROUP");
    if (config == nullptr && group == nullptr) return nullptr;
    if (config == nullptr)
        throw error(errc::invalid,
                    fmt::format("AMALGAM_GROUP is \"{}\" without AMALGAM_CONFIG, expected both, or "
                                "a start by amalgam run, where a process runs one graph once",
                                group));
    if (group == nullptr)
        throw error(errc::invalid,
                    "AMALGAM_CONFIG is set without AMALGAM_GROUP, expected the "
                    "group this process is; example: AMALGAM_GROUP=G1");
    return std::make_unique<by_hand>(config, group, std::getenv("AMALGAM_REPLICA"));
}

}  // namespace amalgam::detail
