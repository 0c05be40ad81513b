#include "processes/network_host.hpp"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <sstream>
#include <stdexcept>

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include <amalgam/fabric/transport.hpp>

#include "conformance/text_operation.hpp"

namespace amalgam::processes {
namespace {

using conformance::channel;
using conformance::child_process;
using operation = conformance::text_operation;

/// Runs a shell command; returns its exit code and output.
std::pair<int, std::string> run_command(const std::string& command) {
    std::FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
    if (pipe == nullptr) throw std::runtime_error("cannot run " + command);
    std::string output;
    std::array<char, 512> some;
    while (std::fgets(some.data(), some.size(), pipe) != nullptr)
        output += some.data();
    const int how = ::pclose(pipe);
    return {WIFEXITED(how) ? WEXITSTATUS(how) : 255, output};
}

/// Runs in the host: one port, and commands from the line.
class resident final : public message_sink {
public:
    explicit resident(channel& line) : line_(line) {}

    void serve() {
        line_.say("ready");
        for (;;) {
            std::optional<std::string> order;
            try {
                until([&] { return (order = line_.overhear()).has_value(); });
            } catch (const std::runtime_error&) {
                return;  // The test is over.
            }
            try {
                line_.say("+" + obey(*order));
            } catch (const std::exception& why) {
                line_.say(std::string("-") + why.what());
            }
        }
    }

private:
    void on_message(message& what) noexcept override {
        last_ = what.from();
        arrived_.push_back(
            std::string(reinterpret_cast<const char*>(what.bytes().data()), what.bytes().size()) +
            " from " + port_->peer_address(last_));
    }
    void on_peer_down(peer_id, status) noexcept override { ++lost_; }

    void until(const std::function<bool()>& reached) {
        while (!reached()) {
            pollfd handles[2] = {{line_.fd(), POLLIN, 0}, {-1, POLLIN, 0}};
            if (port_) {
                if (port_->progress() > 0 || !port_->prepare_to_sleep()) continue;
                handles[1].fd = port_->wait_handle();
            }
            ::poll(handles, 2, -1);
        }
    }

    std::string obey(const std::string& order) {
        std::istringstream words(order);
        std::string verb, first;
        words >> verb >> std::ws;
        if (verb == "run") {
            std::getline(words, first);
            auto [code, output] = run_command(first);
            if (code != 0) throw std::runtime_error(first + ": " + output);
            return output;
        }
        if (verb == "open") return open(words);
        if (verb == "explain") return port_->explain();
        if (verb == "send") {
            words >> first >> std::ws;
            last_ = port_->lookup(first).value();
            post(words);
            return await_end();
        }
        if (verb == "reply" || verb == "post") {
            post(words);
            return verb == "reply" ? await_end() : std::string();
        }
        if (verb == "expect") return expect();
        if (verb == "ended") return await_end();
        if (verb == "lost") return std::to_string(lost_);
        if (verb != "receive") throw std::runtime_error("no such order: " + order);
        until([&] { return !arrived_.empty(); });
        first = std::move(arrived_.front());
        arrived_.pop_front();
        return first;
    }

    std::string open(std::istream& words) {
        std::string uri;
        int limit_ms = 0;
        words >> uri >> limit_ms;
        port_.reset();
        port_options options;
        options.silence_limit = std::chrono::milliseconds(limit_ms);
        options.insecure = true;  // Its network is cut off from every other.
        port_ = transport_registry::installed().open(uri, options).value();
        port_->set_sink(this);
        return port_->address();
    }

    void post(std::istream& words) {
        operation& op = operations_.emplace_back();
        std::getline(words, op.text);
        op.bytes = as_bytes_of(op.text);
        posted how = posted::full;
        until([&] {
            if (how == posted::full) how = port_->post_send(last_, 1, gather(&op.bytes, 1), op);
            return how != posted::full;
        });
        op.over = op.over || how == posted::done;
    }
    std::string expect() {
        operation& op = operations_.emplace_back();
        op.text.resize(100);
        static_cast<void>(port_->post_receive(last_, 9, as_writable_bytes_of(op.text), op));
        return {};
    }
    std::string await_end() {
        operation& op = operations_.back();
        until([&] { return op.over; });
        return std::string(name(op.code));
    }

    channel& line_;
    std::deque<operation> operations_;
    std::deque<std::string> arrived_;
    peer_id last_;
    int lost_ = 0;
    std::unique_ptr<port> port_;
};

/// With its own view of /sys, where libraries look for interfaces: a mount shows the network
/// namespace of the process that mounted it.
int enter_new_network() {
    if (::unshare(CLONE_NEWNET | CLONE_NEWNS) != 0) return errno;
    if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return errno;
    if (::mount("sysfs", "/sys", "sysfs", 0, nullptr) != 0) return errno;
    return 0;
}

}  // namespace

network_host::network_host()
    : process_([](channel& line) {
          if (int why = enter_new_network(); why != 0) {
              line.say(std::strerror(why));
              return 1;
          }
          resident(line).serve();
          return 0;
      }) {
    if (std::string word = process_.line().hear(); word != "ready")
        throw std::runtime_error("no network namespace: " + word);
    run("ip link set lo up");
}

std::optional<std::string> network_host::why_not(bool nat) {
    try {
        network_host a, b;
        a.plug("try0", "", b, "try0", "");
        if (nat)
            a.run(
                "nft 'table ip try { chain out { type nat hook postrouting priority 100; "
                "oifname try0 masquerade; }; }'");
        return std::nullopt;
    } catch (const std::exception& why) {
        return why.what();
    }
}

void network_host::plug(const std::string& here, const std::string& address, network_host& other,
                        const std::string& there, const std::string& other_address) {
    run("ip link add " + here + " type veth peer name " + there + " netns " +
        std::to_string(other.process_.pid()));
    const auto raise = [](network_host& at, const std::string& end, const std::string& its) {
        if (!its.empty()) at.run("ip address add " + its + " dev " + end);
        at.run("ip link set " + end + " up");
    };
    raise(*this, here, address);
    raise(other, there, other_address);
}

std::string network_host::ask(const std::string& order) {
    process_.line().say(order);
    const std::string answer = process_.line().hear();
    if (answer.at(0) != '+') throw std::runtime_error(answer.substr(1));
    return answer.substr(1);
}

std::string network_host::run(const std::string& command) {
    return ask("run " + command);
}

std::string network_host::open(const std::string& uri, int silence_limit_ms) {
    return ask("open " + uri + " " + std::to_string(silence_limit_ms));
}

std::string network_host::complaint(const std::string& uri) {
    try {
        open(uri);
    } catch (const std::runtime_error& why) {
        return why.what();
    }
    return "";
}

std::string network_host::explain() {
    return ask("explain");
}

std::string network_host::send(const std::string& address, const std::string& text) {
    return ask("send " + address + " " + text);
}

std::string network_host::reply(const std::string& text) {
    return ask("reply " + text);
}

std::string network_host::receive() {
    return ask("receive");
}

void network_host::expect() {
    ask("expect");
}

void network_host::post(const std::string& text) {
    ask("post " + text);
}

std::string network_host::ended() {
    return ask("ended");
}

int network_host::lost() {
    return std::stoi(ask("lost"));
}

child_process network_host::start(const std::function<void(channel&)>& body) const {
    return child_process([of = pid(), &body](channel& parent) {
        const unique_fd network(
            ::open(("/proc/" + std::to_string(of) + "/ns/net").c_str(), O_RDONLY | O_CLOEXEC));
        if (::setns(network.get(), CLONE_NEWNET) != 0) return 1;
        body(parent);
        return 0;
    });
}

two_subnets::two_subnets() {
    caller.plug("up0", "10.1.0.2/24", router, "home0", "10.1.0.1/24");
    router.plug("out0", "10.2.0.1/24", server, "net0", "10.2.0.2/24");
    caller.run("ip route add default via 10.1.0.1");
    router.run("sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward'");
}

}  // namespace amalgam::processes
