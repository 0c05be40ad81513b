#include "fabric/trust/tls/tls_session.hpp"

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string>
#include <string_view>

#include <gtest/gtest.h>
#include <malloc.h>
#include <openssl/err.h>
#include <sys/socket.h>
#include <unistd.h>

#include <amalgam/core/clock.hpp>
#include <amalgam/core/random.hpp>
#include <amalgam/core/unique_fd.hpp>

#include "emulated.hpp"
#include "fabric/memory/truncated_file.hpp"
#include "fabric/trust/tls/tls_testing.hpp"

namespace amalgam::detail {
namespace {

using state = tls_session::state;
using side = tls_session::side;

iovec piece_of(mutable_bytes bytes) {
    return {bytes.data(), bytes.size()};
}
iovec piece_of(const std::string& text) {
    return {const_cast<char*>(text.data()), text.size()};
}

/// A connected pair of sockets, and a session on each.
struct session_pair {
    explicit session_pair(SSL_CTX& from, SSL_CTX& to, SSL_SESSION* earlier = nullptr) {
        int both[2];
        if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, both) != 0)
            throw std::runtime_error("no sockets");
        a_end.reset(both[0]);
        b_end.reset(both[1]);
        a.emplace(from, side::connecting, both[0], record);
        b.emplace(to, side::accepting, both[1], record, time);
        if (earlier != nullptr) a->resume(*earlier);
    }

    /// Until both are complete, or one has failed.
    bool shake_hands() {
        state at_a = state::waiting, at_b = state::waiting;
        while (at_a == state::waiting || at_b == state::waiting) {
            if (at_a == state::waiting) at_a = a->shake_hands();
            if (at_b == state::waiting) at_b = b->shake_hands();
            if (at_a == state::failed || at_b == state::failed) return false;
        }
        return true;
    }
    /// Moves all of it from one to the other.
    static std::string carry(tls_session& from, tls_session& to, const std::string& text) {
        std::string got;
        std::size_t gone = 0;
        while (got.size() < text.size()) {
            const std::string left = text.substr(gone);
            const iovec piece = piece_of(left);
            int error = 0;
            if (!left.empty()) gone += from.write({&piece, 1}, error);
            EXPECT_EQ(error, 0);
            (void)from.drain();
            std::string some(100'000, ' ');
            const iovec into = piece_of(some);
            const ssize_t bytes = to.read({&into, 1}, false);
            if (bytes < 0 && errno != EAGAIN) break;
            if (bytes > 0) got += some.substr(0, static_cast<std::size_t>(bytes));
        }
        return got;
    }

    manual_clock time;  ///< Of b.
    tls_record record;
    unique_fd a_end, b_end;
    std::optional<tls_session> a, b;
};

class tls_session_test : public testing::Test {
protected:
    test_authority authority;
    test_certificate own = authority.issue();
    ssl_context_ptr context = bare_context(authority, &own);
    session_pair both{*context, *context};
};

TEST_F(tls_session_test, bytes_arrive_as_they_were_sent_whatever_their_number) {
    ASSERT_TRUE(both.shake_hands());
    for (std::size_t bytes : {1u, 16u, 16'383u, 16'384u, 16'385u, 100'000u, 3'000'000u}) {
        std::string text(bytes, ' ');
        for (std::size_t i = 0; i < bytes; ++i)
            text[i] = static_cast<char>(i * 7 + (i >> 11));
        EXPECT_TRUE(session_pair::carry(*both.a, *both.b, text) == text) << bytes;
        EXPECT_TRUE(session_pair::carry(*both.b, *both.a, text) == text) << bytes;
    }
}

TEST_F(tls_session_test, both_know_who_the_other_is) {
    ASSERT_TRUE(both.shake_hands());
    EXPECT_EQ(both.a->peer().kind, identity_kind::certificate);
    EXPECT_EQ(both.a->peer().name, "node");
    EXPECT_EQ(both.b->peer().name, "node");
}

TEST_F(tls_session_test, what_it_says_last_leaves_with_what_its_user_says_next) {
    const auto is_silent = [](const unique_fd& end) {
        char one;
        return ::recv(end.get(), &one, 1, MSG_PEEK | MSG_DONTWAIT) < 0;
    };
    EXPECT_EQ(both.a->shake_hands(true), state::waiting);
    EXPECT_EQ(both.b->shake_hands(true), state::waiting);
    EXPECT_EQ(both.a->shake_hands(true), state::complete);
    EXPECT_TRUE(is_silent(both.b_end));
    EXPECT_TRUE(both.a->write_whole(as_bytes_of(std::string_view("hello"))));
    EXPECT_EQ(both.b->shake_hands(true), state::complete);
    EXPECT_TRUE(is_silent(both.a_end)) << "its ticket waits";
    std::string got(10, ' ');
    const iovec into = piece_of(got);
    EXPECT_EQ(both.b->read({&into, 1}, false), 5);
    EXPECT_TRUE(both.b->drain());
    EXPECT_FALSE(is_silent(both.a_end));
    EXPECT_EQ(session_pair::carry(*both.b, *both.a, "behind it"), "behind it");
    EXPECT_TRUE(both.a->ticket());
}

TEST_F(tls_session_test, pieces_leave_as_one_record) {
    ASSERT_TRUE(both.shake_hands());
    (void)session_pair::carry(*both.b, *both.a, "the tickets are read with this");
    std::string header(16, 'h'), payload(300, 'p'), third(900, 't');
    const iovec pieces[] = {piece_of(header), piece_of(payload), piece_of(std::string()),
                            piece_of(third)};
    int error = 0;
    EXPECT_EQ(both.a->write(pieces, error), 1216u);
    std::string raw(5000, ' ');
    const ssize_t got = ::recv(both.b_end.get(), raw.data(), raw.size(), MSG_PEEK);
    EXPECT_EQ(got, 5 + 1216 + 1 + 16) << "a header, the text, its type, a tag";
    std::string text(1216, ' ');
    const iovec into = piece_of(text);
    EXPECT_EQ(both.b->read({&into, 1}, false), 1216);
    EXPECT_EQ(text, header + payload + third);
}

TEST_F(tls_session_test, a_full_socket_keeps_what_was_taken_and_takes_no_more) {
    ASSERT_TRUE(both.shake_hands());
    const std::string text(tls_session::bytes_at_a_time, 'x');
    const iovec piece = piece_of(text);
    int error = 0;
    std::size_t taken = 0;
    while (!both.a->has_pending())
        taken += both.a->write({&piece, 1}, error);
    EXPECT_EQ(both.a->write({&piece, 1}, error), 0u);
    EXPECT_EQ(error, 0);
    EXPECT_FALSE(both.a->drain());
    std::size_t got = 0;
    std::string some(50'000, ' ');
    const iovec into = piece_of(some);
    for (int idle = 0; idle < 3;) {
        const ssize_t bytes = both.b->read({&into, 1}, false);
        if (bytes > 0) got += static_cast<std::size_t>(bytes);
        if (bytes <= 0) {
            ++idle;
            (void)both.a->drain();
        }
    }
    EXPECT_EQ(got, taken);
    EXPECT_FALSE(both.a->has_pending());
}

TEST_F(tls_session_test, one_call_takes_no_more_than_its_share) {
    for (const bool by_openssl : {false, true}) {
        session_pair one(*context, *context);
        if (by_openssl) one.b->leave_records_to_openssl();
        ASSERT_TRUE(one.shake_hands());
        int large = 16 << 20;
        ::setsockopt(one.a_end.get(), SOL_SOCKET, SO_SNDBUFFORCE, &large, sizeof large);
        const std::string text(4 << 20, 'x');
        const iovec piece = piece_of(text);
        int error = 0;
        EXPECT_LE(one.a->write({&piece, 1}, error), tls_session::bytes_at_a_time);
        (void)one.a->write({&piece, 1}, error);
        (void)one.a->write({&piece, 1}, error);
        std::string room(4 << 20, ' ');
        const iovec into = piece_of(room);
        const ssize_t got = one.b->read({&into, 1}, false);
        EXPECT_GT(got, 0);
        EXPECT_LE(got, static_cast<ssize_t>(tls_session::bytes_at_a_time + (100 << 10)));
    }
}

TEST_F(tls_session_test, a_read_says_whether_the_socket_was_empty) {
    ASSERT_TRUE(both.shake_hands());
    (void)session_pair::carry(*both.b, *both.a, "x");
    const std::string text(1000, 'x');
    const iovec piece = piece_of(text);
    int error = 0;
    (void)both.a->write({&piece, 1}, error);
    std::string some(400, ' ');
    const iovec into = piece_of(some);
    EXPECT_EQ(both.b->read({&into, 1}, false), 400);
    EXPECT_FALSE(both.b->drained());
    EXPECT_EQ(both.b->read({&into, 1}, false), 400);
    EXPECT_EQ(both.b->read({&into, 1}, false), 200);
    EXPECT_TRUE(both.b->drained());
    EXPECT_EQ(both.b->read({&into, 1}, false), -1);
    EXPECT_EQ(errno, EAGAIN);
    EXPECT_TRUE(both.b->drained());
}

TEST_F(tls_session_test, an_end_is_told_from_a_loss_only_by_tls) {
    ASSERT_TRUE(both.shake_hands());
    (void)session_pair::carry(*both.b, *both.a, "x");
    both.a->say_end();
    std::string some(400, ' ');
    const iovec into = piece_of(some);
    EXPECT_EQ(both.b->read({&into, 1}, false), 0);
    both.b_end.reset();
    EXPECT_EQ(both.a->read({&into, 1}, false), 0);
}

TEST_F(tls_session_test, one_wrong_bit_ends_it_with_a_sentence) {
    ASSERT_TRUE(both.shake_hands());
    (void)session_pair::carry(*both.b, *both.a, "x");
    const std::string text(1000, 'x');
    const iovec piece = piece_of(text);
    int error = 0;
    (void)both.a->write({&piece, 1}, error);
    std::string raw(5000, ' ');
    raw.resize(static_cast<std::size_t>(::recv(both.b_end.get(), raw.data(), raw.size(), 0)));
    raw[raw.size() / 2] ^= 1;
    ASSERT_EQ(::send(both.a_end.get(), raw.data(), raw.size(), 0),
              static_cast<ssize_t>(raw.size()));
    std::string some(400, ' ');
    const iovec into = piece_of(some);
    EXPECT_EQ(both.b->read({&into, 1}, false), -1);
    EXPECT_EQ(errno, EPROTO);
    EXPECT_EQ(both.b->why().sentence,
              "what it sent is not TLS as agreed: decryption failed or bad record mac");
    EXPECT_EQ(both.b->read({&into, 1}, false), -1);
    EXPECT_EQ(errno, EPROTO);
    EXPECT_EQ(ERR_peek_error(), 0u) << "the thread's queue of errors is the user's";
}

TEST_F(tls_session_test, a_new_key_is_taken_up_in_the_midst) {
    ASSERT_TRUE(both.shake_hands());
    for (int i = 0; i < 5; ++i) {
        const std::string text(100'000, static_cast<char>('a' + i));
        both.a->renew_key();
        EXPECT_TRUE(session_pair::carry(*both.a, *both.b, text) == text);
        EXPECT_TRUE(session_pair::carry(*both.b, *both.a, text) == text);
    }
}

TEST_F(tls_session_test, one_read_takes_in_a_bounded_number_of_records) {
    ASSERT_TRUE(both.shake_hands());
    constexpr std::size_t count = 3 * tls_session::records_at_a_time;
    for (std::size_t i = 0; i < count; ++i) {
        const std::string text(1, static_cast<char>(i));
        const iovec piece = piece_of(text);
        int error = 0;
        ASSERT_EQ(both.a->write({&piece, 1}, error), 1u);
    }
    std::string got;
    for (int reads = 0; got.size() < count; ++reads) {
        std::string some(count, ' ');
        const iovec into = piece_of(some);
        const ssize_t bytes = both.b->read({&into, 1}, false);
        ASSERT_GT(bytes, 0);
        EXPECT_LE(bytes, static_cast<ssize_t>(tls_session::records_at_a_time));
        got += some.substr(0, static_cast<std::size_t>(bytes));
        EXPECT_EQ(both.b->drained(), got.size() == count) << "what is held back is not forgotten";
        ASSERT_LT(reads, 10);
    }
    for (std::size_t i = 0; i < count; ++i)
        ASSERT_EQ(got[i], static_cast<char>(i));
    EXPECT_TRUE(session_pair::carry(*both.a, *both.b, std::string(1'000'000, 'x')) ==
                std::string(1'000'000, 'x'));
}

/// `a` renews its key so many times; whether `b` still goes on.
bool renew_often(session_pair& both, unsigned times) {
    for (unsigned i = 0; i < times; ++i) {
        both.a->renew_key();
        std::string some(10, ' ');
        const iovec piece = piece_of(some);
        int error = 0;
        (void)both.a->write({&piece, 1}, error);
        while (both.b->read({&piece, 1}, false) > 0)
            continue;
        if (!both.b->why().sentence.empty()) return false;
    }
    return true;
}

TEST_F(tls_session_test, a_peer_that_renews_its_keys_all_the_time_is_ended_with_a_sentence) {
    ASSERT_TRUE(both.shake_hands());
    for (int second = 0; second < 5; ++second) {
        EXPECT_TRUE(renew_often(both, tls_session::messages_a_second));
        both.time.advance(std::chrono::seconds(1));
    }
    EXPECT_FALSE(renew_often(both, tls_session::messages_a_second + 1));
    EXPECT_EQ(both.b->why().sentence,
              "it sent more than 128 messages of TLS itself within a second, as to renew keys, "
              "expected a few in an hour");
    std::string some(10, ' ');
    const iovec into = piece_of(some);
    EXPECT_EQ(both.b->read({&into, 1}, false), -1);
    EXPECT_EQ(errno, EPROTO);
}

TEST_F(tls_session_test, a_peer_that_asks_for_keys_and_does_not_read_is_ended) {
    both.a->leave_records_to_openssl();
    ASSERT_TRUE(both.shake_hands());
    int small = 1;
    ::setsockopt(both.b_end.get(), SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    std::string some(1000, ' ');
    const iovec into = piece_of(some), piece = piece_of(some);
    // b's answers fill its socket, then its memory up to the bound.
    for (int i = 0; i < 1'000'000 && both.b->write_error() == 0; ++i) {
        SSL* const asks = both.a->native();
        ASSERT_EQ(SSL_key_update(asks, SSL_KEY_UPDATE_REQUESTED), 1);
        int error = 0;
        (void)both.a->write({&piece, 1}, error);
        (void)both.b->read({&into, 1}, false);
        both.time.advance(std::chrono::seconds(1));
    }
    EXPECT_EQ(both.b->write_error(), ENOBUFS);
}

TEST_F(tls_session_test, a_ticket_saves_the_next_handshake_its_signatures) {
    ASSERT_TRUE(both.shake_hands());
    EXPECT_FALSE(both.a->resumed());
    (void)session_pair::carry(*both.b, *both.a, "the tickets are read with this");
    const tls_ticket ticket = both.a->ticket();
    ASSERT_TRUE(ticket);
    for (int i = 0; i < 3; ++i) {
        session_pair next(*context, *context, ticket.get());
        ASSERT_TRUE(next.shake_hands());
        EXPECT_TRUE(next.a->resumed());
        EXPECT_TRUE(next.b->resumed());
        EXPECT_EQ(next.b->peer(), both.b->peer());
        EXPECT_EQ(session_pair::carry(*next.a, *next.b, "hello"), "hello");
    }
}

TEST_F(tls_session_test, a_ticket_of_other_keys_costs_a_whole_handshake_only) {
    ASSERT_TRUE(both.shake_hands());
    (void)session_pair::carry(*both.b, *both.a, "x");
    const tls_ticket ticket = both.a->ticket();
    const ssl_context_ptr renewed = bare_context(authority, &own);
    session_pair next(*context, *renewed, ticket.get());
    ASSERT_TRUE(next.shake_hands());
    EXPECT_FALSE(next.a->resumed());
}

TEST_F(tls_session_test, memory_that_cannot_be_read_or_written_is_an_error_and_no_signal) {
    if (is_emulated()) GTEST_SKIP() << qemu_cannot_look_first;
    ASSERT_TRUE(both.shake_hands());
    truncated_file file(100 * 4096);
    file.truncate(30 * 4096);
    const std::string header(16, 'h');
    int error = 0;
    const iovec bad[] = {piece_of(header), piece_of(file.bytes().subspan(30 * 4096))};
    EXPECT_EQ(both.a->write(bad, error), 0u) << "no header without what it announces";
    EXPECT_EQ(error, EFAULT);
    EXPECT_EQ(both.a->write({&bad[1], 1}, error), 0u);
    EXPECT_EQ(error, EFAULT);
    EXPECT_EQ(both.a->write({bad, 1}, error), 16u);
    EXPECT_EQ(error, 0);
    const iovec partly[] = {piece_of(file.bytes())};
    EXPECT_LE(both.a->write(partly, error), 30u * 4096);

    truncated_file fixed(4 * 4096, PROT_READ);
    const iovec into = piece_of(fixed.bytes());
    EXPECT_EQ(both.b->read({&into, 1}, true), -1);
    EXPECT_EQ(errno, EFAULT);
    std::string right(16, ' ');
    const iovec good = piece_of(right);
    EXPECT_EQ(both.b->read({&good, 1}, true), 16) << "nothing was lost";
    EXPECT_EQ(right, header);
}

TEST_F(tls_session_test, an_idle_session_holds_little_memory) {
    constexpr int pairs = 50;
    std::vector<std::unique_ptr<session_pair>> all;
    const auto used = [] { return ::mallinfo2().uordblks; };
    const auto before = used();
    for (int i = 0; i < pairs; ++i) {
        all.push_back(std::make_unique<session_pair>(*context, *context));
        ASSERT_TRUE(all.back()->shake_hands());
        (void)session_pair::carry(*all.back()->b, *all.back()->a, std::string(30'000, 'x'));
        all.back()->a->rest();
        all.back()->b->rest();
        all.back()->record.received.reset();
    }
    // What a port has once is not a session's.
    const std::size_t each = (used() - before) / (2 * pairs) - sizeof(tls_record) / 2;
    RecordProperty("bytes_each", static_cast<int>(each));
    if (used() > before) {  // A sanitizer's malloc() does not count.
        EXPECT_LT(each, 40u << 10);
    }
    for (const auto& pair : all)
        EXPECT_EQ(session_pair::carry(*pair->a, *pair->b, "after a rest"), "after a rest");
}

TEST_F(tls_session_test, noise_at_any_time_ends_a_session_and_nothing_else) {
    seeded_random dice(7);
    for (int i = 0; i < 300; ++i) {
        session_pair one(*context, *context);
        const std::size_t steps = dice.below(8);
        for (std::size_t step = 0; step < steps; ++step) {
            (void)one.a->shake_hands();
            if (step % 2 == 0) (void)one.b->shake_hands();
        }
        std::string noise(1 + dice.below(3000), ' ');
        for (char& each : noise)
            each = static_cast<char>(dice());
        if (dice.chance(0.5))
            noise.replace(0, std::min<std::size_t>(noise.size(), 3), "\x16\x03\x03",
                          std::min<std::size_t>(noise.size(), 3));
        (void)::send(one.a_end.get(), noise.data(), noise.size(), MSG_NOSIGNAL);
        ::shutdown(one.a_end.get(), SHUT_WR);
        state now = state::waiting;
        for (int tries = 0; tries < 20 && now == state::waiting; ++tries)
            now = one.b->shake_hands();
        ASSERT_NE(now, state::waiting);
        if (now == state::failed) {
            EXPECT_FALSE(one.b->why().sentence.empty());
            continue;
        }
        std::string some(5000, ' ');
        const iovec into = piece_of(some);
        ssize_t got = 0;
        while ((got = one.b->read({&into, 1}, false)) > 0)
            continue;
        EXPECT_TRUE(got == 0 || errno != EAGAIN);
    }
}

TEST_F(tls_session_test, every_flipped_byte_of_a_handshake_is_found) {
    // What the connecting side sends, one byte wrong, at every place.
    for (std::size_t at = 0;; at += 7) {
        session_pair one(*context, *context);
        std::size_t passed = 0;
        bool flipped = false;
        state at_a = state::waiting, at_b = state::waiting;
        int left[2];
        ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, left), 0);
        tls_session far(*context, side::accepting, left[1], one.record);
        const unique_fd near_fd(left[0]), far_fd(left[1]);
        for (int round = 0; round < 6; ++round) {
            if (at_a == state::waiting) at_a = one.a->shake_hands();
            std::string some(20'000, ' ');
            ssize_t got = ::recv(one.b_end.get(), some.data(), some.size(), 0);
            if (got > 0) {
                const auto bytes = static_cast<std::size_t>(got);
                if (at >= passed && at < passed + bytes) {
                    some[at - passed] ^= 0x20;
                    flipped = true;
                }
                passed += bytes;
                (void)::send(near_fd.get(), some.data(), bytes, MSG_NOSIGNAL);
            }
            if (at_b == state::waiting) at_b = far.shake_hands();
            got = ::recv(near_fd.get(), some.data(), some.size(), 0);
            if (got > 0)
                (void)::send(one.b_end.get(), some.data(), static_cast<std::size_t>(got),
                             MSG_NOSIGNAL);
        }
        if (!flipped) {
            EXPECT_EQ(at_b, state::complete);
            break;
        }
        EXPECT_FALSE(at_a == state::complete && at_b == state::complete) << at;
    }
}

}  // namespace
}  // namespace amalgam::detail
