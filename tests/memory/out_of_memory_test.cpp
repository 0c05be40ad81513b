// Every allocation of a port fails once: the first, the second, the third …, until a run has none
// left to fail. Whatever fails, nothing crashes, every operation completes once, nothing is lost
// silently, and the ports remain usable.

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <malloc.h>
#include <openssl/crypto.h>
#include <poll.h>

#include <amalgam/fabric/key_folder.hpp>
#include <amalgam/fabric/transport.hpp>

#include "conformance/child_process.hpp"
#include "conformance/slow_build.hpp"
#include "fabric/one_sided/device_port_testing.hpp"
#include "memory/memory.hpp"
#include "temp_folder.hpp"

namespace amalgam::memory {
namespace {

using conformance::channel;
using conformance::child_process;

/// Counts, without allocating.
struct counted : completion {
    counted()
        : completion([](completion& self, status what, std::size_t) noexcept {
              memory::spared ours;
              auto& me = static_cast<counted&>(self);
              if (++me.runs > 1) ADD_FAILURE() << "a completion ran twice";
              me.ended = what;
          }) {}
    bool over() const noexcept { return how == posted::done || runs != 0; }
    bool succeeded() const noexcept { return over() && ended.ok(); }
    posted how = posted::full;
    int runs = 0;
    status ended;
};

struct counting_sink final : message_sink {
    void on_message(message& got) noexcept override {
        ++messages;
        from = got.from();
        last_bytes = got.bytes().size();
    }
    void on_peer_down(peer_id, status why) noexcept override {
        ++losses;
        blamed_peer = blamed_peer || why.native == EPROTO;
    }
    void on_put(const put_notice&) noexcept override { ++notices; }
    int messages = 0;
    int notices = 0;
    int losses = 0;
    bool blamed_peer = false;
    peer_id from;
    std::size_t last_bytes = 0;
};

/// Two ports and all requests to them, created before memory fails.
class scene {
public:
    scene() : small_(8), large_(300000), into_(300000), memory_(300000) {}

    /// Runs everything, as far as possible.
    void run(const std::string& where_a, const std::string& where_b,
             const transport_registry& registry) {
        if (!open(a_, sink_a_, where_a, registry) || !open(b_, sink_b_, where_b, registry)) return;
        if (only_opens) return;
        std::string address;
        {
            memory::spared ours;
            address = b_->address();
        }
        auto found = a_->lookup(address);
        if (!found) {
            EXPECT_EQ(found.code(), errc::no_memory) << found.sentence();
            return;
        }
        to_b_ = *found;
        send(posted_sends_[0], small_);
        send(posted_sends_[1], large_);
        settle();
        if (sink_b_.from) exchange();
        a_->close(to_b_);
        settle();
    }

    void exchange() {
        peer_id to_a = sink_b_.from;
        keep_posting(receives_[0],
                     [&](completion& op) { return a_->post_receive(to_b_, 1, into_, op); });
        gather large = pieces_of(large_), small = pieces_of(small_);
        keep_posting(expected_[0],
                     [&](completion& op) { return b_->post_send_expected(to_a, 1, large, op); });
        keep_posting(expected_[1],
                     [&](completion& op) { return b_->post_send_expected(to_a, 2, small, op); });
        settle();
        keep_posting(receives_[1],
                     [&](completion& op) { return a_->post_receive(to_b_, 2, into_, op); });
        settle();
        auto target = b_->open_region(mutable_bytes(memory_), access::read_write);
        if (target) {
            keep_posting(transfers_[0], [&](completion& op) {
                return a_->post_put(to_b_, large, target->key(), 0, op);
            });
            keep_posting(transfers_[1], [&](completion& op) {
                return a_->post_get(to_b_, scatter(&into_span_, 1), target->key(), 0, op);
            });
            keep_posting(notified_and_atomic_[0], [&](completion& op) {
                return a_->post_put_notify(to_b_, large, target->key(), 0, 1, op);
            });
            keep_posting(notified_and_atomic_[1], [&](completion& op) {
                return a_->post_fetch_add(to_b_, target->key(), 0, 1, nullptr, op);
            });
            settle();
            // A device carries these, where the transport has one.
            halves_ = {large.front().first(1000), large.front().subspan(1000)};
            keep_posting(again_[0], [&](completion& op) {
                return a_->post_put(to_b_, halves_, target->key(), 0, op);
            });
            keep_posting(again_[1], [&](completion& op) {
                return a_->post_get(to_b_, scatter(&into_span_, 1), target->key(), 0, op);
            });
            keep_posting(again_[2], [&](completion& op) {
                return a_->post_put_notify(to_b_, small, target->key(), 0, 2, op);
            });
            settle();
        } else {
            EXPECT_EQ(target.code(), errc::no_memory);
        }
        for (counted* op : {&receives_[0], &receives_[1]})
            if (op->how == posted::pending && op->runs == 0) a_->cancel(*op);
        settle();
    }

    /// With memory available again: nothing is pending, nothing was lost silently, and the ports
    /// can still communicate.
    void check(bool some_failed) {
        if (!a_ || !b_) return;
        if (!some_failed && !only_opens && a_->can().rma == rma_mode::one_sided) {
            EXPECT_EQ(a_->transfers().direct, 2u);
        }
        for (auto* group :
             {&posted_sends_, &receives_, &expected_, &transfers_, &notified_and_atomic_})
            for (counted& op : *group)
                EXPECT_EQ(op.runs, op.how == posted::pending ? 1 : 0);
        for (counted& op : again_)
            EXPECT_EQ(op.runs, op.how == posted::pending ? 1 : 0);
        EXPECT_LE(sink_b_.notices, 2);
        int notified = 0;
        for (const counted* op : {&notified_and_atomic_[0], &again_[2]})
            notified += op->runs == 1 && op->ended.ok() ? 1 : 0;
        EXPECT_GE(sink_b_.notices, notified);
        EXPECT_FALSE(sink_a_.blamed_peer || sink_b_.blamed_peer)
            << "the peer is said to have broken the protocol, and it was we who had no memory";
        EXPECT_EQ(a_->open_operations(), 0u);
        EXPECT_EQ(b_->open_operations(), 0u);
        int sent = 0;
        for (counted& op : posted_sends_)
            sent += op.succeeded() ? 1 : 0;
        if (sink_a_.losses == 0 && sink_b_.losses == 0) {
            EXPECT_EQ(sink_b_.messages, sent) << "a message was lost without a word";
        }
        EXPECT_TRUE(reaches()) << "the ports do not talk any more";
        b_.reset();
        a_.reset();
    }

    bool only_opens = false;

private:
    static constexpr int patient = 2000;

    /// Whether a message arrives by a new connection.
    bool reaches() {
        const auto there = a_->lookup(b_->address());
        EXPECT_TRUE(there) << there.sentence();
        if (!there) return false;
        to_b_ = *there;
        const int before = sink_b_.messages;
        const gather small(&again_piece_, 1);
        keep_posting(last_,
                     [&](completion& on_done) { return a_->post_send(to_b_, 9, small, on_done); });
        for (int idle = 0; idle < patient && sink_b_.messages == before;)
            idle = step() ? 0 : idle + 1;
        return sink_b_.messages == before + 1;
    }

    bool open(std::unique_ptr<port>& end, counting_sink& sink, const std::string& where,
              const transport_registry& registry) {
        try {
            auto opened = registry.open(where);
            if (opened) {
                end = std::move(opened).value();
                end->set_sink(&sink);
                return true;
            }
            // Of some of its allocations OpenSSL does not tell, and a file seems damaged.
            if (!only_opens || opened.code() != errc::invalid) {
                EXPECT_EQ(opened.code(), errc::no_memory) << opened.sentence();
            }
        } catch (const std::bad_alloc&) {
            // Opening may throw.
        }
        return false;
    }

    /// For one post, however often it is tried: the list is borrowed, too.
    gather pieces_of(const std::vector<std::byte>& bytes) {
        const_bytes& piece = pieces_.at(next_piece_++);
        piece = bytes;
        return gather(&piece, 1);
    }

    void send(counted& op, const std::vector<std::byte>& bytes) {
        gather pieces = pieces_of(bytes);
        keep_posting(op,
                     [&](completion& on_done) { return a_->post_send(to_b_, 1, pieces, on_done); });
    }

    template <typename Post>
    void keep_posting(counted& op, Post post) {
        for (int idle = 0; idle < patient;) {
            op.how = post(op);
            if (op.how != posted::full) return;
            idle = step() ? 0 : idle + 1;
        }
        ADD_FAILURE() << "full for ever";
    }

    /// One round; sleeps briefly when idle.
    bool step() {
        std::size_t ran = a_->progress() + b_->progress();
        if (ran != 0) return true;
        if (!a_->prepare_to_sleep() || !b_->prepare_to_sleep()) return true;
        std::array<pollfd, 2> handles{
            {{a_->wait_handle(), POLLIN, 0}, {b_->wait_handle(), POLLIN, 0}}};
        constexpr int moment_ms = 1;
        return ::poll(handles.data(), handles.size(), moment_ms) > 0;
    }

    /// Until idle.
    void settle() {
        constexpr int quiet = 20;
        for (int idle = 0; idle < quiet;)
            idle = step() ? 0 : idle + 1;
    }

    std::vector<std::byte> small_, large_, into_, memory_;
    mutable_bytes into_span_{into_};
    std::array<const_bytes, 8> pieces_{};
    std::size_t next_piece_ = 0;
    const_bytes again_piece_{small_};
    counted last_;  // May outlast the arrival of its message.
    counting_sink sink_a_, sink_b_;
    std::array<const_bytes, 2> halves_{};
    std::array<counted, 3> again_;
    std::array<counted, 2> posted_sends_, receives_, expected_, transfers_, notified_and_atomic_;
    peer_id to_b_;
    std::unique_ptr<port> a_, b_;
};

// While a device in memory allocates for itself.
int spares_of_device = 0;
std::optional<spared> device_is_spared;

transport_registry with_device() {
    transport_registry registry = transport_registry::native();
    registry.add(std::make_unique<detail::device_transport>());
    return registry;
}

// For OpenSSL, so that its allocations may fail as ours do.
void* allocate(std::size_t bytes, const char*, int) {
    return ::operator new(bytes, std::nothrow);
}
void release(void* memory, const char*, int) {
    ::operator delete(memory);
}
void* reallocate(void* memory, std::size_t bytes, const char*, int) {
    if (memory == nullptr) return ::operator new(bytes, std::nothrow);
    void* const moved = bytes == 0 ? nullptr : ::operator new(bytes, std::nothrow);
    if (moved == nullptr && bytes != 0) return nullptr;
    if (moved != nullptr) std::memcpy(moved, memory, std::min(bytes, ::malloc_usable_size(memory)));
    ::operator delete(memory);
    return moved;
}

enum class whose_memory { ours, openssls_too };
enum class outcome { survived, not_reached, failed };

/// In its own process, so that a crash is just another outcome.
outcome run_with_failure(const std::string& where, std::uint64_t n,
                         whose_memory whose = whose_memory::ours) {
    // Loop ports need a name each.
    const bool named = where == "loop://";
    std::string where_a = where + (named ? "a" : "");
    std::string where_b = where + (named ? "b" : "");
    child_process child([&](channel& parent) {
        transport_registry registry =
            where.starts_with("ofi+memory:") ? with_device() : transport_registry::installed();
        detail::for_the_test::begins = []() noexcept {
            if (spares_of_device++ == 0) device_is_spared.emplace();
        };
        detail::for_the_test::ends = []() noexcept {
            if (--spares_of_device == 0) device_is_spared.reset();
        };
        auto all = std::make_unique<scene>();
        if (whose == whose_memory::openssls_too) {
            all->only_opens = true;
            EXPECT_EQ(CRYPTO_set_mem_functions(&allocate, &reallocate, &release), 1);
        }
        bool struck = false;
        {
            memory::failing failing(n);
            all->run(where_a, where_b, registry);
            struck = memory::failing::struck();
        }
        all->check(struck);
        parent.say(struck ? "struck" : "not reached");
        return 0;
    });
    int code = child.join();
    if (code != 0) return outcome::failed;
    return child.line().hear() == "struck" ? outcome::survived : outcome::not_reached;
}

/// Why this machine lacks the transport; empty: it has it. Loads its library, which takes long, for
/// all processes that are forked later.
std::string why_missing(const std::string& where) {
    if (where.starts_with("ofi+memory:")) return {};
    const auto opened = transport_registry::installed().open(where);
    // Not found where sanitizers keep plug-ins from being built.
    const bool missing = opened.code() == errc::unsupported || opened.code() == errc::not_found;
    return missing ? opened.sentence() : "";
}

/// With a key, where ports prove themselves. Made in another process: OpenSSL takes other functions
/// for its memory only before it has allocated any.
std::string with_credentials(const std::string& where, const temp_folder& folder) {
    if (where.find("+tls:") == where.npos) return where;
    child_process child([&](channel&) {
        make_key(folder.with("lab"), {.name = "lab", .authority = true});
        make_key(folder.with("node"), {.name = "node", .hosts = {"127.0.0.1"}});
        sign_key(folder.with("node"), folder.with("lab"));
        return 0;
    });
    EXPECT_EQ(child.join(), 0);
    return where + "?credentials=" + folder.with("node");
}

class fabric_memory : public testing::TestWithParam<const char*> {
protected:
    const temp_folder folder;
};

TEST_P(fabric_memory, any_allocation_may_fail_and_nothing_is_lost_silently) {
    const std::string where = with_credentials(GetParam(), folder);
    if (const std::string why = why_missing(where); !why.empty()) GTEST_SKIP() << why;
    int failures = 0;
    std::uint64_t n = 1;
    // Most allocations over a plug-in are those of the library that it stands on.
    const bool is_plug_in = where.starts_with("ofi+") || where.starts_with("ucx+");
    for (;; n += conformance::slow_build || is_plug_in ? 3 : 1) {
        outcome what = run_with_failure(where, n);
        if (what == outcome::not_reached) break;
        if (what == outcome::survived) continue;
        ADD_FAILURE() << "allocation " << n << " on " << where;
        if (++failures == 10) break;
    }
    EXPECT_GT(n, 1u) << "no allocation was counted";
}

// Not within a handshake: OpenSSL 3.0 then leaves some of what all its connections share in pieces.
TEST(tls_memory, what_openssl_allocates_may_fail_while_ports_open_and_those_that_are_open_talk) {
    const temp_folder folder;
    const std::string where = with_credentials("tcp+tls://127.0.0.1:0", folder);
    constexpr std::uint64_t step = 149;  // There are some ten thousand.
    for (std::uint64_t n = 1;; n += step) {
        const outcome what = run_with_failure(where, n, whose_memory::openssls_too);
        if (what == outcome::not_reached) break;
        ASSERT_EQ(what, outcome::survived) << "allocation " << n;
    }
}

INSTANTIATE_TEST_SUITE_P(native, fabric_memory,
                         testing::Values("loop://", "shm://", "tcp://127.0.0.1:0",
                                         "tcp+tls://127.0.0.1:0"));
// By hand also ofi+tcp, ofi+tcp?one_sided=host, ofi+sockets?one_sided=any and ofi+tcp+tls.
INSTANTIATE_TEST_SUITE_P(plug_ins, fabric_memory,
                         testing::Values("ofi+tcp://127.0.0.1:0?one_sided=any",
                                         "ucx+shm://127.0.0.1:0"));
INSTANTIATE_TEST_SUITE_P(device, fabric_memory, testing::Values("ofi+memory://127.0.0.1:0"));

}  // namespace
}  // namespace amalgam::memory
