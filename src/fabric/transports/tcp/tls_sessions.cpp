#include "fabric/transports/tcp/tls_sessions.hpp"

#include <new>
#include <utility>

#include <amalgam/core/status.hpp>

namespace amalgam::detail {
namespace {

SSL_CTX& context_or_throw(const result<SSL_CTX*>& made) {
    if (!made) throw std::bad_alloc();
    return **made;
}

}  // namespace

tls_sessions::tls_sessions(std::shared_ptr<const credentials> trust)
    : trust_(std::move(trust)), contexts_(trust_) {}

std::unique_ptr<tls_session> tls_sessions::connect(int fd, const std::string& host,
                                                   const std::string& address) {
    SSL_CTX& context = context_or_throw(contexts_.connecting());
    auto made = std::make_unique<tls_session>(context, tls_session::side::connecting, fd, record_);
    if (const auto set = made->expect_host(host); !set)
        throw error(set.why().what, set.why().sentence);
    if (of_tickets_.get() != &context) {
        tickets_.clear();  // Whom they trusted is no longer known to be right.
        SSL_CTX_up_ref(&context);
        of_tickets_.reset(&context);
    }
    if (const auto kept = tickets_.find(address); kept != tickets_.end())
        made->resume(*kept->second);
    return made;
}

std::unique_ptr<tls_session> tls_sessions::accept(int fd) {
    SSL_CTX& context = context_or_throw(contexts_.accepting());
    return std::make_unique<tls_session>(context, tls_session::side::accepting, fd, record_);
}

void tls_sessions::keep(const std::string& address, const tls_session& of) noexcept try {
    if (!of.is_of(of_tickets_.get())) return;
    tls_ticket ticket = of.ticket();
    if (!ticket) return;
    if (tickets_.size() >= max_tickets && !tickets_.contains(address))
        tickets_.erase(tickets_.begin());
    tickets_.insert_or_assign(address, std::move(ticket));
} catch (const std::bad_alloc&) {
}

bool tls_sessions::may_step(std::uint64_t round) noexcept {
    if (std::exchange(round_, round) != round) steps_ = 0;
    return ++steps_ <= steps_per_round;
}

}  // namespace amalgam::detail
