// Started by mpi_ranks_test under mpirun: every rank serves all others and sends requests to all
// others, at the same time. "mpi_ranks talk" ends when all have their answers; in "mpi_ranks lose"
// the last rank kills itself in the middle, and in "mpi_ranks vanish" afterwards, while the others
// end; "mpi_ranks call" uses engines, with calls and bulks, in "mpi_ranks stop" one of them is
// stopped, and in "mpi_ranks strange" the last one has a key that nobody trusts. A folder of keys
// behind that: over mpi+static+tls. Exit code 1 and a line for each rank with a failure.
#include "processes/mpi_ranks.hpp"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include <poll.h>
#include <unistd.h>

#include <amalgam/core/bytes.hpp>
#include <amalgam/fabric/transport.hpp>

namespace amalgam::processes {
namespace {

constexpr std::uint64_t echo_tag = 1, echoed_tag = 2, key_tag = 3, told_key_tag = 4, done_tag = 5;

/// Keeps its bytes until sent.
struct sending : completion {
    explicit sending(std::vector<std::byte> what)
        : completion(&on_done), bytes(std::move(what)), piece(bytes) {}
    static void on_done(completion& self, status, std::size_t) noexcept {
        delete static_cast<sending*>(&self);
    }
    std::vector<std::byte> bytes;
    const_bytes piece;
};

struct awaited : completion {
    awaited() : completion(&on_done) {}
    static void on_done(completion& self, status how, std::size_t) noexcept {
        auto& one = static_cast<awaited&>(self);
        one.is_over = true;
        one.how = how;
    }
    bool is_over = false;
    status how;
};

class rank final : private message_sink {
public:
    rank()
        : port_(transport_registry::installed().open(own_uri).value()),
          memory_(served_bytes),
          served_(port_->open_region(memory_, access::read_write).value()) {
        port_->set_sink(this);
    }

    void talk(int own, int size) {
        for (int other = 0; other < size; ++other)
            if (other != own) ask(other);
        // Nobody leaves before all have their answers.
        for (int other = 0; other < size; ++other)
            if (other != own) send(peer_of(other), done_tag, {});
        until([&] { return done_ == size - 1; });
    }

    void lose(int own, int size) {
        const int doomed = size - 1;
        if (own == doomed) {  // Dies in the middle of communication.
            until([&] { return echoed_ >= 20; });
            std::raise(SIGKILL);
        }
        std::byte into[8];
        awaited never;
        const peer_id lost = peer_of(doomed);
        expect(port_->post_receive(lost, 7, into, never) == posted::pending, "a receive waits");
        for (int i = 0; !has_lost(lost); ++i) {
            send(lost, echo_tag, pattern(200000, static_cast<std::uint64_t>(i)));
            echoed_back_ = false;
            until([&] { return echoed_back_ || has_lost(lost); });
        }
        expect(never.is_over && never.how == errc::disconnected, "the receive is disconnected");
        expect(why_lost_ == errc::disconnected, "the loss is told as disconnected");
        // The others are unaffected.
        for (int other = 0; other < doomed; ++other)
            if (other != own) {
                ask(other);
                send(peer_of(other), done_tag, {});
            }
        until([&] { return done_ == size - 2; });
    }

private:
    void on_message(message& got) noexcept override {
        if (got.tag() == echo_tag) {
            ++echoed_;
            send(got.from(), echoed_tag, {got.bytes().begin(), got.bytes().end()});
        } else if (got.tag() == key_tag) {
            const auto key = served_.key().encode();
            send(got.from(), told_key_tag, {key.begin(), key.end()});
        } else if (got.tag() == done_tag) {
            ++done_;
        } else {
            answer_.assign(got.bytes().begin(), got.bytes().end());
            echoed_back_ = true;
        }
    }
    void on_peer_down(peer_id who, status why) noexcept override {
        why_lost_ = why;
        lost_.insert(who.value);
    }
    bool has_lost(peer_id who) const { return lost_.count(who.value) != 0; }

    peer_id peer_of(int other) { return port_->lookup(address_of(other)).value(); }

    void until(const std::function<bool()>& reached) {
        const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(100);
        while (!reached()) {
            if (port_->progress() == 0 && port_->prepare_to_sleep()) {
                pollfd handle{port_->wait_handle(), POLLIN, 0};
                ::poll(&handle, 1, 100);
            }
            expect(std::chrono::steady_clock::now() < patience, "it takes too long");
        }
    }

    void send(peer_id to, std::uint64_t tag, std::vector<std::byte> bytes) {
        auto* one = new sending(std::move(bytes));
        posted how = port_->post_send(to, tag, {&one->piece, 1}, *one);
        if (how == posted::full) {
            waiting_.push_back([this, to, tag, one] { return give(to, tag, *one); });
            return;
        }
        if (how == posted::done) delete one;
    }
    bool give(peer_id to, std::uint64_t tag, sending& one) {
        const posted how = port_->post_send(to, tag, {&one.piece, 1}, one);
        if (how == posted::done) delete &one;
        return how != posted::full;
    }

    std::vector<std::byte> answer_to(peer_id to, std::uint64_t tag, std::vector<std::byte> bytes) {
        echoed_back_ = false;
        send(to, tag, std::move(bytes));
        until([&] {
            while (!waiting_.empty() && waiting_.back()())
                waiting_.pop_back();
            return echoed_back_;
        });
        return answer_;
    }

    void transfer(const std::function<posted(completion&)>& post, errc expected) {
        awaited one;
        posted how = posted::full;
        until([&] { return (how = post(one)) != posted::full; });
        if (how == posted::pending) until([&] { return one.is_over; });
        expect(one.how == expected, "a transfer ends as " + std::string(name(expected)) + ", not " +
                                        std::string(name(one.how.code)));
    }

    /// Every kind of request of one rank to another.
    void ask(int other) {
        const peer_id peer = peer_of(other);
        for (std::size_t bytes : {0, 1, 8, 100, 1000, 4000, 4096, 5000, 65000, 65535, 65536, 65537,
                                  200000, 1000000, 9000000}) {
            const auto sent = pattern(bytes, bytes + static_cast<std::uint64_t>(other));
            expect(answer_to(peer, echo_tag, sent) == sent,
                   std::to_string(bytes) + " bytes come back from rank " + std::to_string(other));
        }
        const auto told = answer_to(peer, key_tag, {});
        expect(told.size() == remote_key::wire_bytes, "a key comes");
        const remote_key key =
            remote_key::decode(std::span<const std::byte, remote_key::wire_bytes>(told));
        // Each asking rank has a third of the memory for itself.
        const std::uint64_t offset = served_bytes / 3 * static_cast<std::uint64_t>(mine_);
        const auto out = pattern(served_bytes / 3, static_cast<std::uint64_t>(mine_));
        std::vector<std::byte> in(out.size());
        const const_bytes from(out);
        const mutable_bytes into(in);
        transfer(
            [&](completion& op) {
                return port_->post_put(peer, {&from, 1}, key, offset, op);
            },
            errc::ok);
        transfer(
            [&](completion& op) {
                return port_->post_get(peer, {&into, 1}, key, offset, op);
            },
            errc::ok);
        expect(in == out, "what was put is got");
        remote_key forged = key;
        forged.secret ^= 1;
        transfer(
            [&](completion& op) {
                return port_->post_put(peer, {&from, 1}, forged, 0, op);
            },
            errc::denied);
    }

public:
    int mine_ = 0;  ///< Own rank.

private:
    std::unique_ptr<port> port_;
    std::vector<std::byte> memory_;
    region served_;
    std::vector<std::byte> answer_;
    std::vector<std::function<bool()>> waiting_;
    std::unordered_set<std::uint64_t> lost_;
    status why_lost_;
    bool echoed_back_ = false;
    int echoed_ = 0;
    int done_ = 0;
};

}  // namespace
}  // namespace amalgam::processes

int main(int argc, char** argv) {
    using namespace amalgam::processes;
    const char* own = std::getenv("OMPI_COMM_WORLD_RANK");
    const char* size = std::getenv("OMPI_COMM_WORLD_SIZE");
    if (argc < 2 || argc > 3 || own == nullptr || size == nullptr) {
        std::fprintf(stderr,
                     "usage: mpirun -n 3 mpi_ranks talk|lose|vanish|call|stop|strange [KEYS]\n");
        return 2;
    }
    if (argc == 3) {
        scheme += "+tls";
        own_uri = scheme + "?credentials=" + argv[2];
    }
    try {
        if (std::string_view(argv[1]) == "call") {
            call(std::atoi(own), std::atoi(size));
        } else if (std::string_view(argv[1]) == "stop") {
            stop(std::atoi(own), std::atoi(size));
        } else if (std::string_view(argv[1]) == "strange") {
            strange(std::atoi(own), std::atoi(size));
        } else {
            rank here;
            here.mine_ = std::atoi(own);
            if (std::string_view(argv[1]) != "lose")
                here.talk(here.mine_, std::atoi(size));
            else
                here.lose(here.mine_, std::atoi(size));
        }
        if (std::string_view(argv[1]) == "vanish" && std::atoi(own) == std::atoi(size) - 1)
            std::raise(SIGKILL);
        std::printf("rank %s is content\n", own);
        return 0;
    } catch (const std::exception& what) {
        std::fprintf(stderr, "rank %s: expected: %s\n", own, what.what());
        return 1;
    }
}
