#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
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

#include "fabric/trust/openssl.hpp"

namespace amalgam::detail {

/// Where the sessions of a port, one at a time, put pieces together to one record.
using tls_record = std::array<std::byte, 16384>;
using tls_ticket = openssl_ptr<SSL_SESSION>;

/// One TLS 1.3 connection over a non-blocking stream socket.
///
/// OpenSSL reads and writes the socket through a BIO of ours: nothing waits, ciphertext is sent
/// from and received into OpenSSL's own record buffers, and what a full socket does not take is
/// kept. So plaintext that write() took is never offered again.
///
/// Owner:   borrows the socket and the record; both live longer.
/// Threads: one at a time.
/// Failure: the constructor throws std::bad_alloc.
/// Memory:  80 KiB of record buffers from the first byte on until rest(); 64 KiB more while a peer
///          sends many small records.
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
    /// One step. Failure: throws std::bad_alloc; `failed`: see why().
    state shake_hands();
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
    /// For tests.
    SSL* native() noexcept { return ssl_.get(); }
    /// Key material that only the two ends have (RFC 8446, 7.5). False: the handshake is not
    /// complete.
    bool export_key(std::string_view label, const_bytes context, mutable_bytes into) const noexcept;
    /// What a later connection can resume. Null: the peer has sent nothing of the kind.
    tls_ticket ticket() const noexcept;

    /// Reads plaintext, as readv() does; 0: the peer sends no more. On -1, errno is EAGAIN if
    /// there is nothing; EFAULT for memory that cannot be written, if `guarded`; EPROTO, with
    /// why(), if the peer violated the protocol or refused us; else the socket's.
    ssize_t read(std::span<const iovec> into, bool guarded) noexcept;
    /// The last step or read took its share and left bytes here, of which the socket no longer
    /// tells.
    bool has_held_back() const noexcept { return held_back_gone_ < held_back_.size(); }
    /// The last read() ended because the socket was empty.
    bool drained() const noexcept { return drained_; }

    /// Encrypts the front of `what` and sends it; returns how much it took. Less than all: the
    /// socket is full (has_pending()), or bytes_at_a_time was reached, or memory further on cannot
    /// be read. `error` is 0, EFAULT for such memory at the front, or the socket's. The first
    /// `ours` pieces are known to be readable.
    std::size_t write(std::span<const iovec> what, int& error, std::size_t ours = 0) noexcept;
    /// The same for a few bytes that must go whole. False: the socket takes no more.
    bool write_whole(const_bytes few) noexcept;
    /// Ciphertext waits for room in the socket.
    bool has_pending() const noexcept { return !pending_.empty(); }
    /// Sends it. False: some still waits.
    bool drain() noexcept;
    /// Gives record buffers back that hold nothing; the next call takes new ones.
    void rest() noexcept {
        (void)SSL_free_buffers(ssl_.get());
        if (held_back_.empty()) held_back_ = {};
    }
    /// Why the socket takes no more; 0: it does.
    int write_error() const noexcept { return write_error_; }
    /// Tells the peer that we send no more, as far as there is room.
    void say_end() noexcept;

    /// Encrypts with a new key from here on. Happens by itself before a key is used up.
    void renew_key() noexcept;

private:
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
    void count_message() noexcept;
    bool has_talked_too_much() noexcept;
    const_bytes next_record(plaintext& from, std::size_t most) noexcept;
    bool seal(const_bytes record) noexcept;
    void send(const_bytes ciphertext) noexcept;
    void keep(const_bytes ciphertext) noexcept;

    const int fd_;
    const side side_;
    const clock& time_;
    stop stop_ = stop::no;  ///< Why the BIO reads no more in this call.
    bool drained_ = false;
    bool more_follows_ = false;  ///< Another record, in this call.
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
    tls_record& record_;
    std::vector<std::byte> pending_;
    std::size_t pending_gone_ = 0;
    failure why_;
    identity peer_;
    openssl_ptr<SSL> ssl_;
};

}  // namespace amalgam::detail
