// What a session does once the handshake is over: records are opened and protected here, and not by
// OpenSSL's record layer, which looks up the parameters of its cipher by name for each.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include <fmt/format.h>

#include "fabric/memory/guarded_memory.hpp"
#include "fabric/trust/tls/forgotten_secrets.hpp"
#include "fabric/trust/tls/tls_session.hpp"

namespace amalgam::detail {
namespace {

// Four records of 16 KiB. Below the size from which malloc() asks the kernel each time.
constexpr std::size_t received_bytes = 4 * (traffic_key::max_plain_bytes + traffic_key::more_bytes);
static_assert(received_bytes >= traffic_key::header_bytes + traffic_key::max_protected_bytes);
// Of OpenSSL, where it goes on with the records. For a handshake its usual 17 KiB are enough.
constexpr std::size_t openssl_bytes = std::size_t{64} << 10;

// RFC 8446, 4 and 6.
constexpr std::byte new_session_ticket{4}, key_update{24};
constexpr std::uint8_t close_notify = 0, unexpected_message = 10, bad_record_mac = 20,
                       record_overflow = 22, decode_error = 50, internal_error = 80,
                       user_canceled = 90;

std::size_t length_of(const std::byte* header) noexcept {
    return traffic_key::header_bytes +
           (std::to_integer<std::size_t>(header[3]) << 8 | std::to_integer<std::size_t>(header[4]));
}

}  // namespace

/// Unless something is missing, in which case OpenSSL goes on as it began.
void tls_session::take_records_over() noexcept {
    const SSL_CIPHER* const cipher = SSL_get_current_cipher(ssl_.get());
    const std::size_t more = held_back_.size() - held_back_gone_;
    // OpenSSL has had no byte of what follows the handshake: see share_of().
    const bool is_between = header_bytes_ == 0 && record_left_ == 0 &&
                            SSL_has_pending(ssl_.get()) == 0 && more <= received_bytes;
    // OpenSSL makes the shorter records that such a peer has asked for, and we do not.
    const bool is_short = SSL_SESSION_get_max_fragment_length(SSL_get_session(ssl_.get())) != 0;
    std::unique_ptr<traffic_key> sending, receiving;
    if (!leaves_records_ && cipher != nullptr && is_between && !is_short) {
        sending = traffic_key::make(*cipher, secrets_->sending, traffic_key::use::to_protect,
                                    sent_since_finished_);
        receiving = traffic_key::make(*cipher, secrets_->receiving, traffic_key::use::to_open);
    }
    const bool can_export = secrets_->exporter.size == secrets_->sending.size;
    if (sending == nullptr || receiving == nullptr || !can_export || (more > 0 && !take_buffer())) {
        for (traffic_secret* each : {&secrets_->sending, &secrets_->receiving, &secrets_->exporter})
            each->erase();
        return SSL_set_default_read_buffer_len(ssl_.get(), openssl_bytes);
    }
    forget_secrets(*cipher);
    if (more > 0) {
        std::memcpy(received_.bytes.get(), held_back_.data() + held_back_gone_, more);
        received_.end = more;
    }
    held_back_ = {};
    held_back_gone_ = 0;
    sending_ = std::move(sending);
    receiving_ = std::move(receiving);
    in_step_ = true;
    (void)SSL_free_buffers(ssl_.get());
}

/// OpenSSL protects no more records, and we derive what is exported. It has the resumption secret,
/// of which tickets are made, and the keys of its ciphers, to open these.
void tls_session::forget_secrets(const SSL_CIPHER& cipher) noexcept {
    const bool connects = side_ == side::connecting;
    traffic_secret &ours = secrets_->sending, &theirs = secrets_->receiving;
    forget_traffic_secrets(ssl_.get(), *cipher_suite::of(cipher),
                           {.of_client = connects ? ours : theirs,
                            .of_server = connects ? theirs : ours,
                            .exporter = secrets_->exporter});
    ours.erase();
    theirs.erase();
}

// ---- receiving

/// False: out of memory.
bool tls_session::take_buffer() noexcept {
    received_.bytes = std::move(record_.received);
    if (received_.bytes == nullptr)
        received_.bytes.reset(new (std::nothrow) std::byte[received_bytes]);
    return received_.bytes != nullptr;
}

/// Or something that was opened before.
bool tls_session::has_whole_record() const noexcept {
    if (!plain_.empty()) return true;
    const std::size_t held = received_.end - received_.begin;
    return held >= traffic_key::header_bytes &&
           held >= length_of(received_.bytes.get() + received_.begin);
}

/// As read_piece().
std::size_t tls_session::open_piece(mutable_bytes room, bool guarded, int& error) noexcept {
    std::size_t total = 0;
    std::size_t probed = guarded ? 0 : room.size();
    while (total < room.size()) {
        if (plain_.empty() && !next_plain(error)) break;
        if (total == probed) {
            // Only once there is something to write: until then the memory could change again.
            const std::size_t some = std::min(room.size() - total, probed_at_a_time);
            if (!is_writable_now(room.subspan(total, some))) {
                error = EFAULT;
                break;
            }
            probed += some;
        }
        const std::size_t some = std::min(plain_.size(), probed - total);
        std::memcpy(room.data() + total, plain_.data(), some);
        plain_ = plain_.subspan(some);
        total += some;
        if (stop_ != stop::empty || has_whole_record()) continue;
        drained_ = true;  // Another call would find nothing.
        error = EAGAIN;
        break;
    }
    return total;
}

/// Opens records until one has something for the user. False: `error` says why, as for
/// open_piece().
bool tls_session::next_plain(int& error) noexcept {
    while (plain_.empty()) {
        if (is_over_) {
            error = 0;
            return false;
        }
        const std::size_t held = received_.end - received_.begin;
        std::byte* const at = received_.bytes.get() + received_.begin;
        if (held >= traffic_key::header_bytes) {
            if (at[0] != std::byte{static_cast<std::uint8_t>(record_kind::data)})
                return refuse(unexpected_message, "a record that is not encrypted", error);
            if (length_of(at) > traffic_key::header_bytes + traffic_key::max_protected_bytes)
                return refuse(record_overflow, "a record longer than any may be", error);
        }
        if (held < traffic_key::header_bytes || held < length_of(at)) {
            if (!receive_more(error)) return false;
            continue;
        }
        if (begun_ == records_at_a_time) {
            error = EAGAIN;
            return false;
        }
        ++begun_;
        const std::size_t whole = length_of(at);
        received_.begin += whole;
        if (!open_record({at, whole}, error)) return false;
    }
    return true;
}

/// Precondition: no whole record is here.
bool tls_session::receive_more(int& error) noexcept {
    if (stop_ == stop::no && taken_ >= bytes_at_a_time) stop_ = stop::enough;
    if (received_.bytes == nullptr && stop_ == stop::no && !take_buffer()) {
        stop_ = stop::error;
        read_error_ = ENOMEM;
    }
    if (stop_ != stop::no) {
        drained_ = stop_ == stop::empty;
        error = stop_ == stop::end ? 0 : stop_ == stop::error ? read_error_ : EAGAIN;
        return false;
    }
    const std::size_t held = received_.end - received_.begin;
    if (received_.begin > 0 && held > 0)
        std::memmove(received_.bytes.get(), received_.bytes.get() + received_.begin, held);
    received_.begin = 0;
    received_.end = held;
    const auto got = static_cast<std::size_t>(
        receive_some(reinterpret_cast<char*>(received_.bytes.get()) + held, received_bytes - held));
    received_.end += got;
    taken_ += got;
    return true;  // Whatever came of it: stop_ says so.
}

bool tls_session::open_record(mutable_bytes record, int& error) noexcept {
    // It might be for OpenSSL, and is opened in place.
    if (in_step_ && !hold_back(reinterpret_cast<const char*>(record.data()), record.size())) {
        error = ENOMEM;
        return false;
    }
    const traffic_key::opened found = receiving_->open(record);
    if (found.kind == record_kind::data && ticket_left_ == 0) [[likely]] {
        plain_ = found.plain;
        if (in_step_) held_back_ = {};
        in_step_ = false;
        // Empty ones are allowed, to hide when something is said, and cost as much as others.
        if (plain_.empty()) [[unlikely]]
            count_message();
        return true;
    }
    switch (found.kind) {
        case record_kind::handshake:
            return take_messages(found.plain, error);
        case record_kind::alert:
            return take_alert(found.plain, error);
        case record_kind::none:
            return refuse(bad_record_mac, "decryption failed or bad record mac", error);
        case record_kind::data:
            break;
    }
    return refuse(unexpected_message, "a record that is not due", error);
}

/// Passes over tickets, of which the last may go on in a later record. What is left begins with
/// another message, or is empty.
const_bytes tls_session::pass_tickets(const_bytes messages) noexcept {
    constexpr std::size_t head = 4;
    while (!messages.empty()) {
        if (ticket_left_ == 0) {
            const bool is_ticket = side_ == side::connecting && messages.size() >= head &&
                                   messages[0] == new_session_ticket;
            if (!is_ticket) break;
            ticket_left_ = head + (std::to_integer<std::uint32_t>(messages[1]) << 16 |
                                   std::to_integer<std::uint32_t>(messages[2]) << 8 |
                                   std::to_integer<std::uint32_t>(messages[3]));
        }
        const std::size_t some = std::min<std::size_t>(ticket_left_, messages.size());
        ticket_left_ -= static_cast<std::uint32_t>(some);
        messages = messages.subspan(some);
    }
    return messages;
}

bool tls_session::take_messages(const_bytes messages, int& error) noexcept {
    if (messages.empty()) return refuse(unexpected_message, "an empty message of TLS", error);
    const const_bytes rest = pass_tickets(messages);
    if (in_step_ && rest.empty()) return hand_to_openssl(error);
    if (in_step_) held_back_ = {};
    in_step_ = false;
    count_message();
    return rest.empty() || take_key_update(rest, error);
}

bool tls_session::take_key_update(const_bytes message, int& error) noexcept {
    const bool is_one = message.size() == 5 && message[0] == key_update &&
                        message[1] == std::byte{0} && message[2] == std::byte{0} &&
                        message[3] == std::byte{1} && message[4] <= std::byte{1};
    if (!is_one) return refuse(unexpected_message, "a message of TLS that is not due", error);
    if (!receiving_->next()) return refuse(internal_error, "a key that cannot be used", error);
    if (message[4] == std::byte{0}) return true;
    (void)append_key_update(false);
    flush(false);
    return true;
}

bool tls_session::take_alert(const_bytes alert, int& error) noexcept {
    if (alert.size() != 2) return refuse(decode_error, "an alert of another size", error);
    if (in_step_) return hand_to_openssl(error);  // It has the sentences.
    const auto what = std::to_integer<std::uint8_t>(alert[1]);
    if (what == user_canceled) {  // The end follows, by close_notify.
        count_message();
        return true;
    }
    is_over_ = true;
    error = 0;
    if (what == close_notify) return false;
    has_said_end_ = true;
    error = EPROTO;
    try {
        (void)fail(errc::disconnected, EPROTO,
                   fmt::format("it ended the connection by an alert of TLS: {}",
                               SSL_alert_desc_string_long(what)));
    } catch (const std::bad_alloc&) {
        why_.what = {errc::disconnected, ENOMEM};
    }
    return false;
}

/// Gives it the record that was held back.
bool tls_session::hand_to_openssl(int& error) noexcept {
    char nothing;
    std::size_t got = 0;
    const bool wrong = SSL_read_ex(ssl_.get(), &nothing, 1, &got) == 1;
    const bool goes_on = !wrong && starves(ssl_.get());
    held_back_ = {};
    held_back_gone_ = 0;
    if (!goes_on) {
        error = wrong ? EPROTO : after_failed_read();
        is_over_ = true;
        has_said_end_ = has_said_end_ || error != 0;
        return false;
    }
    (void)SSL_free_buffers(ssl_.get());
    return true;
}

/// To OpenSSL, of the record that was held back.
int tls_session::hand_over(char* into, std::size_t bytes) noexcept {
    const std::size_t some = std::min(bytes, held_back_.size() - held_back_gone_);
    if (some > 0) std::memcpy(into, held_back_.data() + held_back_gone_, some);
    held_back_gone_ += some;
    return static_cast<int>(some);
}

/// The peer is told by an alert, the user by a sentence.
bool tls_session::refuse(std::uint8_t alert, const char* sentence, int& error) noexcept {
    const std::byte fatal[] = {std::byte{2}, std::byte{alert}};
    (void)append(record_kind::alert, fatal);
    flush(false);
    has_said_end_ = true;
    is_over_ = true;
    held_back_ = {};
    error = EPROTO;
    try {
        (void)fail(errc::disconnected, EPROTO,
                   fmt::format("what it sent is not TLS as agreed: {}", sentence));
    } catch (const std::bad_alloc&) {
        why_.what = {errc::disconnected, ENOMEM};
    }
    return false;
}

// ---- sending

/// Protects it behind what waits for flush().
bool tls_session::append(record_kind kind, const_bytes plain) noexcept {
    const std::size_t whole = plain.size() + traffic_key::more_bytes;
    const bool fits = record_.sealed_bytes + whole <= record_.sealed.size();
    if (has_said_end_ && write_error_ == 0) write_error_ = EPIPE;
    if (write_error_ != 0 || !fits ||
        !sending_->protect(kind, plain, record_.sealed.data() + record_.sealed_bytes)) {
        clear_openssl_errors();
        if (write_error_ == 0) write_error_ = EPROTO;
        return false;
    }
    record_.sealed_bytes += whole;
    return true;
}

bool tls_session::append_key_update(bool asked_back) noexcept {
    const std::byte message[] = {key_update, std::byte{0}, std::byte{0}, std::byte{1},
                                 std::byte{asked_back}};
    if (!append(record_kind::handshake, message)) return false;
    if (sending_->next()) return true;
    write_error_ = EPROTO;
    return false;
}

void tls_session::flush(bool more_follows) noexcept {
    more_follows_ = more_follows;
    const std::size_t bytes = std::exchange(record_.sealed_bytes, 0);
    if (bytes > 0) send({record_.sealed.data(), bytes});
    more_follows_ = false;
}

}  // namespace amalgam::detail
