#include "fabric/trust/tls/tls_session.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <openssl/err.h>
#include <sys/socket.h>

#include "fabric/memory/guarded_memory.hpp"
#include "fabric/trust/tls/pre_shared_proof.hpp"
#include "fabric/trust/tls/tls_contexts.hpp"

namespace amalgam::detail {
namespace {

constexpr const char* refused_unheard =
    "the peer closed the connection at the TLS handshake; a port at tcp:// does so, and is reached "
    "by "
    "tcp://, not by tcp+tls://";

/// The digest of each cipher suite has as many, or more.
constexpr std::size_t most_exported_bytes = 32;

/// Of an SSL: its session.
int place_of_session() noexcept {
    static const int place =
        CRYPTO_get_ex_new_index(CRYPTO_EX_INDEX_SSL, 0, nullptr, nullptr, nullptr, nullptr);
    return place;
}

/// After a fatal error, ours or an alert of the peer's.
bool has_failed(const SSL* ssl) noexcept {
    return SSL_in_init(ssl) && std::string_view(SSL_state_string(ssl)) == "SSLERR";
}

}  // namespace

/// It waits for bytes. SSL_get_error() would say so too, but only if no error of the user's is left
/// in the thread's queue; SSL_want_read() alone is also true after some fatal errors.
bool tls_session::starves(const SSL* ssl) noexcept {
    if (!SSL_want_read(ssl)) return false;
    return !has_failed(ssl);
}

// ---- the BIO

struct tls_session::wire {
    static tls_session& session_of(BIO* bio) noexcept {
        return *static_cast<tls_session*>(BIO_get_data(bio));
    }

    static int read(BIO* bio, char* into, int bytes) noexcept {
        tls_session& self = session_of(bio);
        BIO_clear_retry_flags(bio);
        if (self.receiving_ != nullptr) {
            const int got = self.hand_over(into, static_cast<std::size_t>(bytes));
            if (got > 0) return got;
            BIO_set_retry_read(bio);
            return -1;
        }
        const bool is_held = self.held_back_gone_ < self.held_back_.size();
        if (self.stop_ == stop::no || (self.stop_ == stop::empty && is_held)) {
            const int got = self.receive(into, static_cast<std::size_t>(bytes));
            if (got > 0) return got;
        }
        if (self.stop_ == stop::empty || self.stop_ == stop::enough) BIO_set_retry_read(bio);
        return -1;
    }

    static int write(BIO* bio, const char* from, int bytes) noexcept {
        BIO_clear_retry_flags(bio);
        // What OpenSSL would say now it would encrypt by a key and a nonce that we have used.
        if (session_of(bio).sending_ != nullptr) return bytes;
        session_of(bio).send(
            {reinterpret_cast<const std::byte*>(from), static_cast<std::size_t>(bytes)});
        return bytes;
    }

    static long control(BIO*, int command, long, void*) noexcept {
        return command == BIO_CTRL_FLUSH ? 1 : 0;
    }

    static BIO_METHOD* method() {
        static BIO_METHOD* const made = [] {
            BIO_METHOD* all = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "amalgam");
            if (all == nullptr) throw std::bad_alloc();
            BIO_meth_set_read(all, &read);
            BIO_meth_set_write(all, &write);
            BIO_meth_set_ctrl(all, &control);
            return all;
        }();
        return made;
    }
};

/// From what was held back, else from the socket. 0: nothing, and stop_ says why.
ssize_t tls_session::receive_some(char* into, std::size_t bytes) noexcept {
    if (held_back_gone_ < held_back_.size()) [[unlikely]] {
        const std::size_t some = std::min(bytes, held_back_.size() - held_back_gone_);
        std::memcpy(into, held_back_.data() + held_back_gone_, some);
        return static_cast<ssize_t>(some);
    }
    if (stop_ != stop::no) return 0;
    ssize_t got;
    do
        got = ::recv(fd_, into, bytes, MSG_DONTWAIT);
    while (got < 0 && errno == EINTR);
    if (got == 0) stop_ = stop::end;
    if (got < 0) {
        stop_ = errno == EAGAIN ? stop::empty : stop::error;
        if (errno != EAGAIN) read_error_ = errno;
    }
    if (got > 0 && static_cast<std::size_t>(got) < bytes) stop_ = stop::empty;
    return std::max<ssize_t>(got, 0);
}

/// How many of these bytes OpenSSL is given: within the handshake up to the end of a record, so
/// that it never has any of what comes after; later all, or up to the record that would be one too
/// many. What this reads of the stream is the length of each record, which is not encrypted.
std::size_t tls_session::share_of(const char* at, std::size_t bytes) noexcept {
    constexpr std::uint8_t header = 5, length_at = 3;
    std::size_t i = 0;
    while (i < bytes) {
        if (record_left_ > 0) {
            const std::size_t some = std::min<std::size_t>(record_left_, bytes - i);
            record_left_ = static_cast<std::uint16_t>(record_left_ - some);
            i += some;
            if (record_left_ == 0 && !is_complete_) break;
            continue;
        }
        if (header_bytes_ == 0 && begun_++ == records_at_a_time) break;
        if (header_bytes_ >= length_at)
            length_ = static_cast<std::uint16_t>(length_ << 8 | static_cast<unsigned char>(at[i]));
        ++i;
        if (++header_bytes_ < header) continue;
        record_left_ = length_;
        header_bytes_ = 0;
    }
    return i;
}

/// Keeps what was received beyond the share for the next call. False: out of memory.
bool tls_session::hold_back(const char* at, std::size_t bytes) noexcept try {
    held_back_.assign(at, at + bytes);
    held_back_gone_ = 0;
    return true;
} catch (const std::bad_alloc&) {
    return false;
}

int tls_session::receive(char* into, std::size_t bytes) noexcept {
    const bool again = held_back_gone_ < held_back_.size();
    ssize_t got = receive_some(into, bytes);
    if (got <= 0) return 0;
    const std::size_t share = share_of(into, static_cast<std::size_t>(got));
    if (again) {
        held_back_gone_ += share;
        if (held_back_gone_ == held_back_.size()) held_back_.clear();
        if (held_back_.empty()) held_back_gone_ = 0;
    }
    if (share < static_cast<std::size_t>(got)) {
        const auto more = static_cast<std::size_t>(got) - share;
        if (!again && !hold_back(into + share, more)) {
            stop_ = stop::error;
            read_error_ = ENOMEM;
            return 0;
        }
        if (is_complete_ || begun_ > records_at_a_time) stop_ = stop::enough;
        got = static_cast<ssize_t>(share);
        if (share == 0) return 0;
    }
    if (first_bytes_ < first_.size()) {
        const std::size_t some =
            std::min(first_.size() - first_bytes_, static_cast<std::size_t>(got));
        std::memcpy(first_.data() + first_bytes_, into, some);
        first_bytes_ = static_cast<std::uint8_t>(first_bytes_ + some);
    }
    taken_ += static_cast<std::size_t>(got);
    if (stop_ == stop::no && taken_ >= bytes_at_a_time) stop_ = stop::enough;
    return static_cast<int>(got);
}

void tls_session::send(const_bytes ciphertext) noexcept {
    if (write_error_ != 0) return;
    if (gathers_) {
        try {
            if (pending_.size() + ciphertext.size() <= gathered_bytes) {
                pending_.insert(pending_.end(), ciphertext.begin(), ciphertext.end());
                return;
            }
        } catch (const std::bad_alloc&) {  // Then it leaves by itself.
        }
        (void)drain();
    }
    if (pending_.empty()) {
        const int flags = MSG_NOSIGNAL | MSG_DONTWAIT | (more_follows_ ? MSG_MORE : 0);
        ssize_t sent;
        do
            sent = ::send(fd_, ciphertext.data(), ciphertext.size(), flags);
        while (sent < 0 && errno == EINTR);
        if (sent < 0 && errno != EAGAIN) {
            write_error_ = errno;
            return;
        }
        ciphertext = ciphertext.subspan(sent > 0 ? static_cast<std::size_t>(sent) : 0);
        if (ciphertext.empty()) return;
    }
    keep(ciphertext);
}

void tls_session::keep(const_bytes ciphertext) noexcept {
    if (pending_.size() + ciphertext.size() > max_pending_bytes) {
        write_error_ = ENOBUFS;
        return;
    }
    try {
        pending_.insert(pending_.end(), ciphertext.begin(), ciphertext.end());
    } catch (const std::bad_alloc&) {
        write_error_ = ENOMEM;
    }
}

bool tls_session::drain() noexcept {
    while (!pending_.empty() && write_error_ == 0) {
        const ssize_t sent = ::send(fd_, pending_.data() + pending_gone_,
                                    pending_.size() - pending_gone_, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0 && errno == EAGAIN) return false;
        if (sent < 0) {
            write_error_ = errno;
            break;
        }
        pending_gone_ += static_cast<std::size_t>(sent);
        if (pending_gone_ < pending_.size()) continue;
        pending_ = {};
        pending_gone_ = 0;
    }
    return write_error_ == 0;
}

// ---- life

tls_session::tls_session(SSL_CTX& context, side which, int fd, tls_record& record,
                         const clock& time)
    : fd_(fd), side_(which), time_(time), record_(record), ssl_(SSL_new(&context)) {
    openssl_ptr<BIO> bio(BIO_new(wire::method()));
    if (!ssl_ || !bio) throw std::bad_alloc();
    BIO_set_data(bio.get(), this);
    BIO_set_init(bio.get(), 1);
    SSL_set_bio(ssl_.get(), bio.get(), bio.get());
    bio.release();
    // Not RELEASE_BUFFERS, which costs malloc() and free() for every record: see rest().
    SSL_clear_mode(ssl_.get(), SSL_MODE_RELEASE_BUFFERS);
    SSL_set_mode(ssl_.get(), SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_set_read_ahead(ssl_.get(), 1);
    SSL_set_msg_callback(ssl_.get(), &on_message);
    SSL_set_msg_callback_arg(ssl_.get(), this);
    if (SSL_set_ex_data(ssl_.get(), place_of_session(), this) != 1) throw std::bad_alloc();
    if (which == side::accepting)
        SSL_set_accept_state(ssl_.get());
    else
        SSL_set_connect_state(ssl_.get());
}

tls_session::~tls_session() {
    if (!is_complete_) forget_pre_shared_key(ssl_.get());
    // A session that did not end by TLS's own message could not be resumed otherwise.
    SSL_set_shutdown(ssl_.get(), SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
}

void tls_session::say_end() noexcept {
    if (write_error_ != 0 || has_pending()) return;
    if (sending_ != nullptr) {
        constexpr std::byte close_notify[] = {std::byte{1}, std::byte{0}};
        (void)append(record_kind::alert, close_notify);
        has_said_end_ = true;
        return flush(false);
    }
    if (SSL_shutdown(ssl_.get()) < 0) clear_openssl_errors();
}

// ---- the handshake

result<void> tls_session::expect_host(const std::string& host) {
    return detail::expect_host(ssl_.get(), host);
}

void tls_session::resume(SSL_SESSION& earlier) noexcept {
    if (SSL_set_session(ssl_.get(), &earlier) != 1) clear_openssl_errors();
}

bool tls_session::export_key(std::string_view label, const_bytes context,
                             mutable_bytes into) const noexcept {
    if (!is_complete_ || into.size() > most_exported_bytes ||
        label.size() > cipher_suite::most_label_bytes)
        return false;
    const no_errors_left at_the_end;
    if (secrets_->exporter.size != 0)  // Then OpenSSL has it no more.
        return cipher_suite::of(*SSL_get_current_cipher(ssl_.get()))
            ->export_key(secrets_->exporter, label, context, into);
    const auto bytes_at = [](auto* at) { return reinterpret_cast<const unsigned char*>(at); };
    return SSL_export_keying_material(ssl_.get(), reinterpret_cast<unsigned char*>(into.data()),
                                      into.size(), label.data(), label.size(),
                                      bytes_at(context.data()), context.size(), 1) == 1;
}

tls_ticket tls_session::ticket() const noexcept {
    if (uses_pre_shared_keys(ssl_.get())) return {};
    tls_ticket last(SSL_get1_session(ssl_.get()));
    if (last && SSL_SESSION_is_resumable(last.get()) != 1) last.reset();
    return last;
}

tls_session::state tls_session::shake_hands(bool goes_on) {
    begin_reading();
    drain();
    gathers_ = true;
    const bool is_over = SSL_do_handshake(ssl_.get()) == 1;
    gathers_ = false;
    hear_secrets(false);  // Others of the same context have not got so far.
    if (!is_over || !goes_on) drain();
    if (!is_over) {
        const bool waits = starves(ssl_.get()) && stop_ != stop::end && stop_ != stop::error;
        return waits && write_error_ == 0 ? state::waiting : failed_handshake();
    }
    auto who = verified_peer(ssl_.get());
    forget_pre_shared_key(ssl_.get());
    if (!who) {
        why_ = who.why();
        drain();
        return state::failed;
    }
    peer_ = std::move(*who);
    take_records_over();
    is_complete_ = true;
    return state::complete;
}

/// From here on OpenSSL tells us secrets, or no more: it writes each as text, 64 times sprintf(),
/// and those of the handshake are of no use.
void tls_session::hear_secrets(bool wanted) noexcept {
    if (leaves_records_) return;
    SSL_CTX_set_keylog_callback(SSL_get_SSL_CTX(ssl_.get()), wanted ? &on_secret : nullptr);
}

/// Called by OpenSSL with "LABEL RANDOM SECRET", as for a file of keys.
void tls_session::on_secret(const SSL* ssl, const char* line) noexcept {
    auto* const self = static_cast<tls_session*>(SSL_get_ex_data(ssl, place_of_session()));
    if (self == nullptr) return;
    const std::string_view all(line);
    const bool connects = self->side_ == side::connecting;
    session_secrets& told = *self->secrets_;
    traffic_secret* into = nullptr;
    if (all.starts_with("CLIENT_TRAFFIC_SECRET_0 "))
        into = connects ? &told.sending : &told.receiving;
    if (all.starts_with("SERVER_TRAFFIC_SECRET_0 "))
        into = connects ? &told.receiving : &told.sending;
    if (all.starts_with("EXPORTER_SECRET ")) into = &told.exporter;
    if (into != nullptr) (void)into->read_hex(all.substr(all.rfind(' ') + 1));
}

tls_session::state tls_session::fail(errc code, int native, std::string sentence) {
    clear_openssl_errors();
    why_ = {{code, native}, std::move(sentence)};
    return state::failed;
}

tls_session::state tls_session::failed_handshake() {
    // An alert that says why arrives before the end of the stream.
    const bool lost = starves(ssl_.get());
    if (lost && stop_ == stop::end)
        return fail(errc::unreachable, ECONNRESET,
                    first_bytes_ != 0 ? "the peer closed the connection within the TLS handshake"
                    : side_ == side::accepting
                        ? "the peer closed the connection before the TLS handshake"
                        : refused_unheard);
    if (lost && stop_ == stop::error && first_bytes_ == 0 && side_ == side::connecting)
        return fail(errc::unreachable, read_error_, refused_unheard);
    if (lost && stop_ == stop::error)
        return fail(errc::unreachable, read_error_,
                    fmt::format("the connection was lost within the TLS handshake: {}",
                                std::strerror(read_error_)));
    if (write_error_ != 0 && lost)
        return fail(errc::unreachable, write_error_,
                    fmt::format("the connection was lost within the TLS handshake: {}",
                                std::strerror(write_error_)));
    why_ = handshake_failure(ssl_.get());
    return state::failed;
}

// ---- reading

void tls_session::begin_reading() noexcept {
    stop_ = stop::no;
    drained_ = false;
    taken_ = 0;
    begun_ = 0;
}

/// Called by OpenSSL for all that is sent and received, records and the messages in them.
void tls_session::on_message(int sent, int, int kind, const void* at, std::size_t bytes, SSL*,
                             void* session) noexcept {
    auto& self = *static_cast<tls_session*>(session);
    // The last message of each side, behind which OpenSSL makes the secrets of what follows.
    const bool is_last = kind == SSL3_RT_HANDSHAKE && bytes > 0 &&
                         *static_cast<const unsigned char*>(at) == SSL3_MT_FINISHED;
    if (is_last && !self.is_complete_) self.hear_secrets(true);
    if (kind == SSL3_RT_HANDSHAKE && sent == 0) return self.count_message();
    if (sent == 0) return;
    // A message is told after its records, and the key changes behind this one.
    if (is_last) self.is_finished_ = true;
    if (kind == SSL3_RT_HEADER && self.is_finished_) ++self.sent_since_finished_;
}

void tls_session::count_message() noexcept {
    if (!is_complete_) return;
    const clock::time_point now = time_.now();
    if (now - second_ >= std::chrono::seconds(1)) {
        second_ = now;
        messages_ = 0;
    }
    ++messages_;
}

/// Ends the session, if so. What was read before stays read.
bool tls_session::has_talked_too_much() noexcept {
    if (messages_ <= messages_a_second) return false;
    try {
        (void)fail(errc::disconnected, EPROTO,
                   fmt::format("it sent more than {} messages of TLS itself within a second, as to "
                               "renew keys, expected a few in an hour",
                               messages_a_second));
    } catch (const std::bad_alloc&) {
        why_.what = {errc::disconnected, ENOMEM};
    }
    return true;
}

ssize_t tls_session::read(std::span<const iovec> into, bool guarded) noexcept {
    begin_reading();
    if (why_.what.code != errc::ok) {
        errno = EPROTO;
        return -1;
    }
    std::size_t total = 0;
    for (const iovec& piece : into) {
        const mutable_bytes room(static_cast<std::byte*>(piece.iov_base), piece.iov_len);
        int error = 0;
        const std::size_t got = receiving_ != nullptr ? open_piece(room, guarded, error)
                                                      : read_piece(room, guarded, error);
        total += got;
        if (got == room.size()) continue;
        if (total > 0) break;
        if (has_talked_too_much()) error = EPROTO;
        errno = error;
        return error == 0 ? 0 : -1;
    }
    (void)has_talked_too_much();
    return static_cast<ssize_t>(total);
}

/// Fills `room`. On less, `error` says why: 0 for the end of the stream.
std::size_t tls_session::read_piece(mutable_bytes room, bool guarded, int& error) noexcept {
    std::size_t total = 0;
    std::size_t probed = guarded ? 0 : room.size();
    while (total < room.size()) {
        if (total == probed) {
            // Only once there is something to write: until then the memory could change again.
            char first;
            std::size_t peeked = 0;
            if (SSL_peek_ex(ssl_.get(), &first, 1, &peeked) != 1) {
                error = after_failed_read();
                break;
            }
            const std::size_t some = std::min(room.size() - total, probed_at_a_time);
            if (!is_writable_now(room.subspan(total, some))) {
                error = EFAULT;
                break;
            }
            probed += some;
        }
        std::size_t got = 0;
        if (SSL_read_ex(ssl_.get(), room.data() + total, probed - total, &got) != 1) {
            error = after_failed_read();
            break;
        }
        total += got;
        if (stop_ != stop::empty || SSL_has_pending(ssl_.get()) != 0) continue;
        drained_ = true;  // Another call would find nothing.
        error = EAGAIN;
        break;
    }
    return total;
}

int tls_session::after_failed_read() noexcept {
    if (starves(ssl_.get())) {
        drained_ = stop_ == stop::empty;
        return stop_ == stop::end ? 0 : stop_ == stop::error ? read_error_ : EAGAIN;
    }
    const bool is_over = (SSL_get_shutdown(ssl_.get()) & SSL_RECEIVED_SHUTDOWN) != 0;
    if (is_over && !has_failed(ssl_.get())) return 0;
    try {
        why_ = handshake_failure(ssl_.get());
        // The handshake is over: it is the peer's records that are wrong.
        constexpr std::string_view wrong = "the TLS handshake failed: ";
        if (why_.sentence.starts_with(wrong))
            why_.sentence.replace(0, wrong.size(), "what it sent is not TLS as agreed: ");
    } catch (const std::bad_alloc&) {
        why_.what = {errc::disconnected, ENOMEM};
        clear_openssl_errors();
    }
    return EPROTO;
}

// ---- writing

std::size_t tls_session::write(std::span<const iovec> what, int& error, std::size_t ours) noexcept {
    error = 0;
    if (!drain()) {
        error = write_error_;
        return 0;
    }
    std::size_t left = 0;
    for (const iovec& piece : what)
        left += piece.iov_len;
    left = std::min(left, bytes_at_a_time);
    std::size_t taken = 0;
    for (plaintext from{what, ours}; left > 0 && !has_pending() && write_error_ == 0;) {
        const const_bytes record = next_record(from, left);
        if (record.empty()) {
            if (taken == 0) error = EFAULT;
            break;
        }
        left -= record.size();
        more_follows_ = left > 0;
        if (!seal(record)) break;
        taken += record.size();
        constexpr std::size_t one = traffic_key::max_plain_bytes + traffic_key::more_bytes + 64;
        if (record_.sealed_bytes + one > record_.sealed.size()) flush(left > 0);
    }
    if (record_.sealed_bytes != 0) flush(false);
    more_follows_ = false;
    if (write_error_ != 0) error = write_error_;
    return taken;
}

bool tls_session::write_whole(const_bytes few) noexcept {
    const bool sealed = write_error_ == 0 && seal(few);
    if (record_.sealed_bytes != 0) flush(false);
    (void)drain();
    return sealed && write_error_ == 0;
}

bool tls_session::seal(const_bytes record) noexcept {
    // Far below what a key of AES-GCM is good for (RFC 8446, 5.5).
    constexpr std::uint32_t records_per_key = 1u << 23;
    const bool is_used_up = ++records_ % records_per_key == 0;
    if (sending_ != nullptr)
        return (!is_used_up || append_key_update(false)) && append(record_kind::data, record);
    if (is_used_up) renew_key();
    std::size_t taken = 0;
    if (SSL_write_ex(ssl_.get(), record.data(), record.size(), &taken) == 1) return true;
    clear_openssl_errors();
    if (write_error_ == 0) write_error_ = EPROTO;
    return false;
}

void tls_session::renew_key() noexcept {
    if (sending_ != nullptr) {
        (void)append_key_update(false);
        return flush(false);
    }
    if (SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED) != 1) clear_openssl_errors();
}

/// The next plaintext, of at most `most` bytes: where it stands if it is long or all in one piece,
/// else put together. Empty: it cannot be read.
const_bytes tls_session::next_record(plaintext& from, std::size_t most) noexcept {
    const std::size_t whole = std::min(most, record_.plain.size());
    const_bytes piece = from.rest();
    if (piece.size() >= whole) {
        piece = piece.first(whole);
        if (!from.is_readable(piece)) return {};
        from.advance(whole);
        return piece;
    }
    std::size_t filled = 0;
    const plaintext before = from;
    while (filled < whole) {
        piece = from.rest();
        piece = piece.first(std::min(piece.size(), whole - filled));
        if (!from.is_readable(piece)) {
            // As the kernel does: a header must not leave without what it announces.
            from = before;
            return {};
        }
        std::memcpy(record_.plain.data() + filled, piece.data(), piece.size());
        filled += piece.size();
        from.advance(piece.size());
    }
    return {record_.plain.data(), filled};
}

/// What is left of the current piece; skips empty ones. Precondition: something is left.
const_bytes tls_session::plaintext::rest() noexcept {
    while (within == pieces.front().iov_len) {
        pieces = pieces.subspan(1);
        ours -= ours > 0 ? 1 : 0;
        within = probed = 0;
    }
    const iovec& piece = pieces.front();
    return {static_cast<const std::byte*>(piece.iov_base) + within, piece.iov_len - within};
}

/// Whether the front of rest() can be read at the moment.
bool tls_session::plaintext::is_readable(const_bytes front) noexcept {
    const std::size_t length = pieces.front().iov_len;
    if (ours > 0 || within + front.size() <= probed) return true;
    const std::size_t some = std::min(length - within, std::max(front.size(), probed_at_a_time));
    if (is_readable_now({front.data(), some})) {
        probed = within + some;
        return true;
    }
    return some > front.size() && is_readable_now(front);
}

}  // namespace amalgam::detail
