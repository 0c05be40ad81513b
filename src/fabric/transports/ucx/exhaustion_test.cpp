// Ports over UCX while memory or descriptors lack, and after.
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "conformance/child_process.hpp"
#include "conformance/slow_build.hpp"
#include "contains.hpp"
#include "fabric/transports/tcp/test_port.hpp"
#include "scarce_resources.hpp"

namespace amalgam::detail {
namespace {

using conformance::channel;
using conformance::child_process;

constexpr std::size_t kib = 1024;
constexpr std::size_t mib = 1024 * kib;

result<std::unique_ptr<port>> open(const std::string& where, const port_options& options = {}) {
    return transport_registry::installed().open(where, options);
}

/// From now on, shmat() finds no memory in this thread, after so many calls that still do.
/// Failure: false where the kernel denies that.
bool fail_shmat(int permitted) {
    std::array<sock_filter, 4> rules{{
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_shmat, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    }};
    const sock_fprog program{rules.size(), rules.data()};
    ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    const long asks =
        ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
    if (asks < 0) return false;
    std::thread([asks = static_cast<int>(asks), permitted]() mutable {
        for (;;) {
            seccomp_notif call{};
            if (::ioctl(asks, SECCOMP_IOCTL_NOTIF_RECV, &call) != 0) continue;
            seccomp_notif_resp answer{};
            answer.id = call.id;
            if (permitted-- > 0)
                answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
            else
                answer.error = -ENOMEM;
            ::ioctl(asks, SECCOMP_IOCTL_NOTIF_SEND, &answer);
        }
    }).detach();
    return true;
}

/// All that malloc() has left, in pieces of one size.
class all_pieces {
public:
    explicit all_pieces(std::size_t bytes) {
        while (void* const one = std::malloc(bytes)) {
            *static_cast<void**>(one) = first_;
            first_ = one;
        }
    }
    ~all_pieces() {
        while (first_ != nullptr)
            std::free(std::exchange(first_, *static_cast<void**>(first_)));
    }
    all_pieces(const all_pieces&) = delete;

private:
    void* first_ = nullptr;
};

class ucx_exhaustion : public testing::TestWithParam<std::string> {
protected:
    void SetUp() override {
        if (conformance::slow_build)
            GTEST_SKIP() << "sanitizers and emulators map more than any limit";
        const auto opened = open(GetParam());
        if (opened.code() == errc::unsupported) GTEST_SKIP() << opened.sentence();
    }
};

TEST_P(ucx_exhaustion, port_without_enough_memory_is_refused_with_a_word_about_the_limit) {
    child_process child([where = GetParam()](channel& parent) {
        EXPECT_TRUE(open(where));  // Loads all that it needs.
        for (const std::size_t spare : {std::size_t{0}, 300 * kib, mib, 8 * mib, 20 * mib}) {
            const little_memory little(spare);
            const auto opened = open(where);
            EXPECT_EQ(opened.code(), errc::no_memory) << spare << ": " << opened.sentence();
            EXPECT_TRUE(contains(opened.sentence(), "raise the limit (ulimit -v)"))
                << spare << ": " << opened.sentence();
        }
        EXPECT_TRUE(open(where));
        parent.say("");
        return testing::Test::HasFailure() ? 1 : 0;
    });
    EXPECT_EQ(child.join(), 0);
}

// UCX takes a cell of the other end's queue before it finds that it has no memory to attach the
// buffers: that cell would block the queue for ever.
TEST_P(ucx_exhaustion, connection_without_memory_fails_and_later_ones_stand) {
    child_process child([where = GetParam()](channel& parent) {
        std::size_t failed = 0;
        // With less than that UCX itself may end the process.
        for (std::size_t spare = 400 * kib; spare < 20 * mib;
             spare += spare < 8 * mib ? 400 * kib : mib) {
            tcp_test_port here(open(where).value()), there(open(where).value());
            std::vector<std::byte> far(100), near(100, std::byte{3});
            const region target = there.end->open_region(far, access::read_write).value();
            const const_bytes from = near;
            const peer_id to_there = here.look_up(there.end->address());
            tcp_test_port::operation sent, put;
            std::array<posted, 2> how{};
            {
                const little_memory little(spare);
                how = {here.post(to_there, 1, "hello", sent),
                       here.end->post_put_notify(to_there, {&from, 1}, target.key(), 0, 7, put)};
                for (int rounds = 0; rounds < 2000; ++rounds) {
                    here.end->progress();
                    there.end->progress();
                }
            }
            connect_again(here, there);
            if (how[0] == posted::pending && sent.code != errc::ok) {
                ++failed;
                EXPECT_TRUE(sent.code == errc::no_memory || sent.code == errc::disconnected)
                    << spare << ": " << name(sent.code);
            }
        }
        EXPECT_GT(failed, 0u);
        parent.say("");
        return testing::Test::HasFailure() ? 1 : 0;
    });
    EXPECT_EQ(child.join(), 0);
}

/// Needs no memory, unlike tcp_test_port.
struct counting_sink final : message_sink {
    void on_message(message& what) noexcept override {
        const const_bytes bytes = what.bytes();
        is_whole = is_whole && std::all_of(bytes.begin(), bytes.end(), [&](std::byte one) {
                       return one == static_cast<std::byte>(what.tag());
                   });
        ++arrived;
    }
    void on_peer_down(peer_id, status) noexcept override { ++lost; }

    bool is_whole = true;
    std::size_t arrived = 0;
    std::size_t lost = 0;
};

/// UCX splits long packets, and loses one silently if it has no memory to join the pieces.
TEST_P(ucx_exhaustion, packets_that_are_lost_end_the_connection) {
    child_process child([where = GetParam()](channel& parent) {
        constexpr std::size_t count = 60;
        for (const std::size_t piece : {1000, 9000, 60000}) {
            auto here = open(where).value(), there = open(where).value();
            counting_sink near, far;
            here->set_sink(&near);
            there->set_sink(&far);
            const auto move_until_reached = [&](const auto& reached) {
                while (!reached()) {
                    here->progress();
                    there->progress();
                }
            };
            const peer_id to_there = here->lookup(there->address()).value();
            std::vector<tcp_test_port::operation> all(count);
            for (std::size_t i = 0; i < count; ++i) {
                all[i].text.assign(16000, static_cast<char>(i));
                all[i].bytes = as_bytes_of(all[i].text);
            }
            std::size_t sent = 0;
            const auto send_next = [&] {
                tcp_test_port::operation& one = all[sent];
                const posted how = here->post_send(to_there, sent, {&one.bytes, 1}, one);
                if (how != posted::full) ++sent;
                return how != posted::full;
            };
            EXPECT_TRUE(send_next());
            move_until_reached([&] { return far.arrived == 1; });
            {
                const little_memory little(0);
                const all_pieces held(piece);
                while (sent < count && send_next()) {
                }
                for (int rounds = 0; rounds < 3000; ++rounds) {
                    here->progress();
                    there->progress();
                }
            }
            move_until_reached([&] {
                return here->open_operations() == 0 && (far.arrived == sent || far.lost > 0);
            });
            EXPECT_TRUE(far.is_whole);
            far.arrived = 0;
            const peer_id again = here->lookup(there->address()).value();
            tcp_test_port::operation late;
            late.text = std::string(100, 'x');
            late.bytes = as_bytes_of(late.text);
            (void)here->post_send(again, 'x', {&late.bytes, 1}, late);
            move_until_reached([&] { return far.arrived == 1 && here->open_operations() == 0; });
            EXPECT_TRUE(far.is_whole);
        }
        parent.say("");
        return testing::Test::HasFailure() ? 1 : 0;
    });
    EXPECT_EQ(child.join(), 0);
}

/// How a send to that address ended.
errc send_to(tcp_test_port& caller, const std::string& address) {
    tcp_test_port::operation sent;
    if (caller.post(caller.look_up(address), 1, std::string(20000, 'x'), sent) == posted::done)
        return errc::ok;
    move_until({&caller}, [&] { return sent.over; });
    return sent.code;
}

/// Makes progress until the other end of the line says something.
void serve(port& here, channel& until) {
    while (!until.overhear())
        here.progress();
}

// UCX connects back as soon as the caller's first message comes, and does not tell if it cannot.
TEST_P(ucx_exhaustion, port_without_descriptors_turns_callers_away_and_is_reached_later) {
    child_process called([where = GetParam()](channel& caller) {
        counting_sink sink;
        for (std::size_t spare = 1; spare < 4; ++spare) {
            const auto here = open(where).value();
            here->set_sink(&sink);
            {
                const few_descriptors few(spare);
                caller.say(here->address());
                serve(*here, caller);
            }
            caller.say("");
            serve(*here, caller);
        }
        return 0;
    });
    for (std::size_t spare = 1; spare < 4; ++spare) {
        tcp_test_port caller(open(GetParam()).value());
        const std::string address = called.line().hear();
        EXPECT_EQ(send_to(caller, address), errc::disconnected) << spare;
        called.line().say("");
        called.line().hear();
        EXPECT_EQ(send_to(caller, address), errc::ok) << spare;
        called.line().say("");
    }
    EXPECT_EQ(called.join(), 0);
}

class ucx_connecting : public testing::Test {
protected:
    void SetUp() override {
        if (const auto opened = open(where); opened.code() == errc::unsupported)
            GTEST_SKIP() << opened.sentence();
    }
    void TearDown() override {
        if (is_denied) GTEST_SKIP() << "the kernel denies system call filters";
    }

    const std::string where = "ucx+sysv://127.0.0.1:0";
    bool is_denied = false;
};

TEST_F(ucx_connecting, caller_whom_ucx_cannot_answer_is_told_within_the_silence_limit) {
    child_process called([this](channel& caller) {
        const auto here = open(where).value();
        counting_sink sink;
        here->set_sink(&sink);
        caller.say(fail_shmat(0) ? here->address() : "");
        serve(*here, caller);
        return 0;
    });
    port_options impatient;
    impatient.silence_limit = std::chrono::milliseconds(300);
    tcp_test_port caller(open(where, impatient).value());
    const std::string address = called.line().hear();
    is_denied = address.empty();
    if (!is_denied) {
        EXPECT_EQ(send_to(caller, address), errc::unreachable);
    }
    called.line().say("");
    EXPECT_EQ(called.join(), 0);
}

TEST_F(ucx_connecting, port_whose_first_caller_left_its_queue_stuck_turns_later_ones_away) {
    port_options patient;
    patient.silence_limit = std::chrono::hours(1);
    child_process first([&](channel& test) {
        tcp_test_port here(open(where).value());
        const std::string address = test.hear();
        if (!fail_shmat(1)) {  // The other end's queue is attached, our buffers are not.
            test.say("denied");
            return 0;
        }
        EXPECT_EQ(send_to(here, address), errc::no_memory);
        test.say("");
        return testing::Test::HasFailure() ? 1 : 0;
    });
    tcp_test_port called(open(where, patient).value()), second(open(where, patient).value());
    first.line().say(called.end->address());
    std::optional<std::string> said;
    move_until({&called}, [&] { return (said = first.line().overhear()).has_value(); });
    EXPECT_EQ(first.join(), 0);
    is_denied = !said->empty();
    if (is_denied) return;
    tcp_test_port::operation sent;
    (void)second.post(second.look_up(called.end->address()), 1, std::string(20000, 'x'), sent);
    move_until({&called, &second}, [&] { return sent.over; });
    EXPECT_EQ(sent.code, errc::disconnected);
}

INSTANTIATE_TEST_SUITE_P(ucx, ucx_exhaustion,
                         testing::Values("ucx+shm://127.0.0.1:0", "ucx+posix://127.0.0.1:0",
                                         "ucx+tcp://127.0.0.1:0", "ucx+all://127.0.0.1:0"));

}  // namespace
}  // namespace amalgam::detail
