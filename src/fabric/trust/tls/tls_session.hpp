#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>
#include <sys/uio.h>

#include <amalgam/core/bytes.hpp>
#include <amalgam/core/clock.hpp>
#include <amalgam/core/result.hpp>
#include <amalgam/fabric/identity.hpp>

#include "fabric/trust/openssl/openssl.hpp"
#include "fabric/trust/tls/traffic_key.hpp"

namespace amalgam::detail {

/// Where the sessions of a port, one at a time, put records together.
struct tls_record {
    static constexpr std::size_t joined = 3;  ///< Records that leave by one call of send().
    std::array<std::byte, traffic_key::max_plain_bytes> plain;
    /// With room for a message of TLS's own.
    std::array<std::byte, joined*(traffic_key::max_plain_bytes + traffic_key::more_bytes) + 64>
        sealed;
    std::size_t sealed_bytes = 0;  ///< 0 between two calls of a session.
    /// The buffer of a session that rests, for the next that receives.
    std::unique_ptr<std::byte[]> received;
};
using tls_ticket = openssl_ptr<SSL_SESSION>;

/// What OpenSSL told of a connection's secrets.
struct session_secrets : in_secret_memory {
    traffic_secret sending, receiving;  ///< Until the keys are made of them.
    traffic_secret exporter;            ///< As long as the connection.
};
static_assert(sizeof(session_secrets) <= in_secret_memory::most_bytes);

/// One TLS 1.3 connection over a non-blocking stream socket.
///
/// OpenSSL shakes hands, reading and writing the socket through a BIO of ours: nothing waits, and
/// what a full socket does not take is kept, so plaintext that write() took is never offered again.
/// After the handshake records are protected and opened here, by the ciphers of OpenSSL and with
/// the secrets that it agreed on; what comes of tickets it is given. Secrets are kept where no core
/// dump has them, and OpenSSL's copies overwritten.
///
/// Owner:   borrows the socket and the record; both live longer.
/// Threads: one at a time.
/// Failure: the constructor throws std::bad_alloc.
/// Memory:  80 KiB of record buffers until the handshake is over, then 64 KiB from the first byte
///          that is received until rest().
class tls_session {
public:
    enum class side : std::uint8_t { connecting, accepting };
    enum class state : std::uint8_t { waiting, complete, failed };

    /// Most ciphertext that one read() takes in, and most plaintext that one write() takes: how
    /// long the others of a port wait for one.
    static constexpr std::size_t bytes_at_a_time = std::size_t{128} << 10;
    /// Most records that one read() takes in, for the same reason: each costs about a microsecond,
    /// however little is in it, and a renewed key several.
    static constexpr std::size_t records_at_a_time = 64;
    /// Most messages of TLS itself, once the handshake is complete, within a second; more end the
    /// connection. A peer renews its key every few million records, and gives one ticket.
    static constexpr unsigned messages_a_second = 128;
    /// Most ciphertext that waits for room. More is only possible for a peer that makes us answer
    /// and does not read the answers; its connection ends.
    static constexpr std::size_t max_pending_bytes = std::size_t{64} << 10;

    tls_session(SSL_CTX& context, side which, int fd, tls_record& record,
                const clock& time = clock::steady());
    ~tls_session();
    tls_session(const tls_session&) = delete;

    // ---- the handshake
    /// For a connecting side, before the first step: see detail::expect_host().
    result<void> expect_host(const std::string& host);
    /// Offers to go on where an earlier connection to the same peer ended.
    void resume(SSL_SESSION& earlier) noexcept;
    /// One step. `goes_on`: what is said last, once it is complete, may wait for what the caller
    /// says next, by write_whole(), or for drain(), and leaves with it. Failure: throws
    /// std::bad_alloc; `failed`: see why().
    state shake_hands(bool goes_on = false);
    /// Why the handshake, or a read after it, failed; the sentence is about the peer, which it does
    /// not name.
    const failure& why() const noexcept { return why_; }
    /// The first bytes of the peer, at most 16.
    const_bytes beginning() const noexcept { return {first_.data(), first_bytes_}; }

    // ---- once it is complete
    const identity& peer() const noexcept { return peer_; }
    bool resumed() const noexcept { return SSL_session_reused(ssl_.get()) == 1; }
    bool is_of(const SSL_CTX* context) const noexcept {
        return SSL_get_SSL_CTX(ssl_.get()) == context;
    }
    /// For tests: of a session whose handshake is over, only to be looked at.
    SSL* native() noexcept { return ssl_.get(); }
    /// For tests, before the handshake: a session all of which is OpenSSL's, as of other programs.
    void leave_records_to_openssl() noexcept { leaves_records_ = true; }
    /// For tests: as if it had sent so many.
    void count_records(std::uint32_t sent) noexcept { records_ = sent; }
    /// Key material that only the two ends have (RFC 8446, 7.5): at most 32 bytes, under a label of
    /// at most 64. False: it is longer, or the handshake is not complete.
    bool export_key(std::string_view label, const_bytes context, mutable_bytes into) const noexcept;
    /// What a later connection can resume. Null: the peer has sent nothing of the kind.
    tls_ticket ticket() const noexcept;

    /// Reads plaintext, as readv() does; 0: the peer sends no more. On -1, errno is EAGAIN if
    /// there is nothing; EFAULT for memory that cannot be written, if `guarded`; EPROTO, with
    /// why(), if the peer violated the protocol or refused us; else the socket's.
    ssize_t read(std::span<const iovec> into, bool guarded) noexcept;
    /// The last step or read took its share and left bytes here, of which the socket no longer
    /// tells.
    bool has_held_back() const noexcept {
        return held_back_gone_ < held_back_.size() || (!drained_ && has_whole_record());
    }
    /// The last read() ended because the socket was empty.
    bool drained() const noexcept { return drained_; }

    /// Encrypts the front of `what` and sends it; returns how much it took. Less than all: the
    /// socket is full (has_pending()), or bytes_at_a_time was reached, or memory further on cannot
    /// be read. `error` is 0, EFAULT for such memory at the front, or the socket's. The first
    /// `ours` pieces are known to be readable.
    std::size_t write(std::span<const iovec> what, int& error, std::size_t ours = 0) noexcept;
    /// The same for a few bytes that must go whole, behind what waits. False: the socket takes no
    /// more.
    bool write_whole(const_bytes few) noexcept;
    /// Ciphertext waits for room in the socket.
    bool has_pending() const noexcept { return !pending_.empty(); }
    /// Sends it. False: some still waits.
    bool drain() noexcept;
    /// Gives record buffers back that hold nothing; the next call takes new ones.
    void rest() noexcept {
        if (receiving_ == nullptr) (void)SSL_free_buffers(ssl_.get());
        if (held_back_.empty()) held_back_ = {};
        if (received_.begin < received_.end || !plain_.empty()) return;
        if (received_.bytes != nullptr) record_.received = std::move(received_.bytes);
        received_ = {};
    }
    /// Why the socket takes no more; 0: it does.
    int write_error() const noexcept { return write_error_; }
    /// Tells the peer that we send no more, as far as there is room.
    void say_end() noexcept;

    /// Encrypts with a new key from here on. Happens by itself before a key is used up.
    void renew_key() noexcept;

private:
    /// Most that gathers before it leaves; a flight without certificates is some hundred bytes.
    static constexpr std::size_t gathered_bytes = 4096;
    // Users' memory is probed in steps of this size, shortly before it is read or written.
    static constexpr std::size_t probed_at_a_time = std::size_t{64} << 10;
    enum class stop : std::uint8_t { no, empty, enough, end, error };
    struct wire;  // The BIO.
    /// A walk over what is to be written.
    struct plaintext {
        std::span<const iovec> pieces;
        std::size_t ours = 0;    ///< The first of them, which need no probe.
        std::size_t within = 0;  ///< Of the first of them, taken.
        std::size_t probed = 0;  ///< Of the first of them, found readable.

        const_bytes rest() noexcept;
        bool is_readable(const_bytes front) noexcept;
        void advance(std::size_t bytes) noexcept { within += bytes; }
    };

    state fail(errc code, int native, std::string sentence);
    static bool starves(const SSL* ssl) noexcept;
    state failed_handshake();
    void begin_reading() noexcept;
    std::size_t read_piece(mutable_bytes room, bool guarded, int& error) noexcept;
    int after_failed_read() noexcept;
    int receive(char* into, std::size_t bytes) noexcept;
    ssize_t receive_some(char* into, std::size_t bytes) noexcept;
    std::size_t share_of(const char* at, std::size_t bytes) noexcept;
    bool hold_back(const char* at, std::size_t bytes) noexcept;
    static void on_message(int sent, int version, int kind, const void* at, std::size_t bytes,
                           SSL* ssl, void* session) noexcept;
    void hear_secrets(bool wanted) noexcept;
    static void on_secret(const SSL* ssl, const char* line) noexcept;
    void count_message() noexcept;
    bool has_talked_too_much() noexcept;
    const_bytes next_record(plaintext& from, std::size_t most) noexcept;
    bool seal(const_bytes record) noexcept;
    void send(const_bytes ciphertext) noexcept;

    // ---- records, after the handshake
    void take_records_over() noexcept;
    void forget_secrets(const SSL_CIPHER& cipher) noexcept;
    bool take_buffer() noexcept;
    bool has_whole_record() const noexcept;
    std::size_t open_piece(mutable_bytes room, bool guarded, int& error) noexcept;
    bool next_plain(int& error) noexcept;
    bool receive_more(int& error) noexcept;
    bool open_record(mutable_bytes record, int& error) noexcept;
    const_bytes pass_tickets(const_bytes messages) noexcept;
    bool take_messages(const_bytes messages, int& error) noexcept;
    bool take_key_update(const_bytes message, int& error) noexcept;
    bool take_alert(const_bytes alert, int& error) noexcept;
    bool hand_to_openssl(int& error) noexcept;
    int hand_over(char* into, std::size_t bytes) noexcept;
    bool refuse(std::uint8_t alert, const char* sentence, int& error) noexcept;
    bool append(record_kind kind, const_bytes plain) noexcept;
    bool append_key_update(bool asked_back) noexcept;
    void flush(bool more_follows) noexcept;
    void keep(const_bytes ciphertext) noexcept;

    const int fd_;
    const side side_;
    const clock& time_;
    stop stop_ = stop::no;  ///< Why the BIO reads no more in this call.
    bool drained_ = false;
    bool more_follows_ = false;  ///< Another record, in this call.
    bool gathers_ = false;       ///< What is sent leaves together, by drain().
    std::uint8_t first_bytes_ = 0;
    std::array<std::byte, 16> first_{};  ///< What the peer began with.
    int read_error_ = 0;
    int write_error_ = 0;
    bool is_complete_ = false;       ///< The handshake.
    std::size_t taken_ = 0;          ///< Ciphertext, in this call.
    std::size_t begun_ = 0;          ///< Records of it.
    std::uint8_t header_bytes_ = 0;  ///< Of the next record's header, seen.
    std::uint16_t record_left_ = 0;  ///< Of the current record, not seen so far.
    std::uint16_t length_ = 0;       ///< As the header says.
    unsigned messages_ = 0;          ///< Of TLS itself, since the second began.
    clock::time_point second_{};     ///< Began.
    std::vector<char> held_back_;    ///< Received, for a later call.
    std::size_t held_back_gone_ = 0;
    std::uint32_t records_ = 0;  ///< Written.

    struct buffer {
        std::unique_ptr<std::byte[]> bytes;
        std::size_t begin = 0, end = 0;
    };
    bool leaves_records_ = false;
    bool is_finished_ = false;   ///< Our part of the handshake.
    bool in_step_ = false;       ///< OpenSSL was given every record that came so far.
    bool is_over_ = false;       ///< The peer sends no more.
    bool has_said_end_ = false;  ///< An alert ended our direction; nothing may follow it.
    std::uint32_t sent_since_finished_ = 0;  ///< Records, by OpenSSL.
    std::uint32_t ticket_left_ = 0;          ///< Bytes of a ticket that come in later records.
    const std::unique_ptr<session_secrets> secrets_ = std::make_unique<session_secrets>();
    std::unique_ptr<traffic_key> sending_;    ///< Null: OpenSSL does it.
    std::unique_ptr<traffic_key> receiving_;  ///< Together with sending_.
    buffer received_;                         ///< What is to be opened.
    const_bytes plain_;                       ///< Opened, within received_, for a later call.
    tls_record& record_;
    std::vector<std::byte> pending_;
    std::size_t pending_gone_ = 0;
    failure why_;
    identity peer_;
    openssl_ptr<SSL> ssl_;
};

}  // namespace amalgam::detail
