#pragma once

#include <cstdint>

#include <amalgam/fabric/message.hpp>

namespace amalgam::detail {

/// What a port sent to a peer and received from it, since the connection began. Messages are
/// unexpected and expected ones; their bytes are the user's, without headers.
struct peer_traffic {
    std::uint64_t sent_messages = 0;  ///< Taken for sending.
    std::uint64_t sent_bytes = 0;
    std::uint64_t received_messages = 0;
    std::uint64_t received_bytes = 0;
    std::uint64_t put_bytes = 0;  ///< Of puts that were posted here.
    std::uint64_t got_bytes = 0;  ///< Of gets that were posted here.

    peer_traffic& operator+=(const peer_traffic& more) noexcept {
        sent_messages += more.sent_messages;
        sent_bytes += more.sent_bytes;
        received_messages += more.received_messages;
        received_bytes += more.received_bytes;
        put_bytes += more.put_bytes;
        got_bytes += more.got_bytes;
        return *this;
    }
};

/// For ports that count so. A port derives from it.
///
/// Threads: the port's.
class traffic_counts {
public:
    /// Zeros for an unknown id.
    virtual peer_traffic traffic_with(peer_id) const noexcept = 0;
    /// Of all peers, also of those that are gone.
    virtual peer_traffic traffic() const noexcept = 0;

protected:
    ~traffic_counts() = default;
};

}  // namespace amalgam::detail
