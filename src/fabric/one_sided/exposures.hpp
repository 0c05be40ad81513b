#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_set>
#include <vector>

#include <amalgam/core/bytes.hpp>
#include <amalgam/fabric/one_sided.hpp>

#include "fabric/frames/frame.hpp"
#include "fabric/one_sided/home.hpp"
#include "fabric/one_sided/peer.hpp"

namespace amalgam::detail {

/// The target's side: regions that were exposed to the carrier, at the first question of a peer
/// that shows a valid key, and who was told of them.
///
/// Threads: the port's thread.
class exposures {
public:
    /// Regions told to one peer; it is told of no more.
    static constexpr std::size_t max_told = 4096;

    exposures(one_sided_carrier& carrier, one_sided_home& home) noexcept
        : carrier_(carrier),
          home_(home),
          each_region_(carrier.one_sided_traits().has_region_keys) {}

    delivery on_question(one_sided_peer&, std::uint64_t tag, const_bytes payload) noexcept;
    /// Sends what waits, while the link has room.
    void pump(one_sided_peer&) noexcept;
    void open(const remote_key& key, scatter segments) noexcept {
        if (!each_region_) carrier_.show(key, segments);
    }
    /// When it returns, no peer accesses the region. Those who know it are told.
    void close(const remote_key&, const std::vector<one_sided_peer*>& peers) noexcept;

private:
    bool tell(one_sided_peer&, key_notice&) noexcept;
    bool tell_segments(one_sided_peer&, key_notice&, scatter segments) noexcept;
    bool refuse(one_sided_peer&, const key_notice&) noexcept;
    bool say_none(one_sided_peer&, std::uint64_t question) noexcept;
    bool send(one_sided_peer&, frame_kind, std::uint64_t tag, const_bytes payload) noexcept;

    one_sided_carrier& carrier_;
    one_sided_home& home_;
    const bool each_region_;
    std::unordered_set<std::uint64_t> exposed_;
    std::uint64_t closing_ = 0;  ///< A region that is hidden already, and still open for its port.
};

}  // namespace amalgam::detail
