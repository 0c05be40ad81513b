#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include <amalgam/tasks/event.hpp>

#include "directory/membership/dissemination.hpp"
#include "directory/membership/peers.hpp"
#include "directory/membership/probes.hpp"
#include "directory/membership/runtime.hpp"
#include "directory/membership/view.hpp"

namespace amalgam::detail {

/// Obtains id ranges. A server claims a range that no known server has, tells all, and owns it if
/// nobody objects for a while. An owner objects. Of two claims, the lower key wins. Two servers
/// that came to own one range while unaware of each other both keep it, for the ids already given
/// out; the one with the higher key allocates new ids elsewhere.
///
/// Threads: any. Its lock guards which ranges this server owns, and that one claim is pending; the
///          claimed ranges are in the view.
class id_claims {
public:
    id_claims(ring_runtime& runtime, membership_view& view, ring_peers& peers, dissemination& news,
              probes& pings);

    /// Claims one more range, in its own ULT, unless a claim is pending.
    void want();
    /// The same if this server has none, but leaves it to the caller to tell others of the claim.
    void claim_first();
    /// Claims a range from which contexts here got ids by an earlier server. Parks; false if
    /// another server owns it, or it cannot be claimed. `for_reader`: of a context that may not
    /// register; these have few claims, so that they use up nobody else's.
    bool own_again(std::uint32_t range, bool for_reader);
    /// Parks until it owns a range; false on timeout. Claims one again if none was free before.
    bool wait_until_ready(std::chrono::nanoseconds at_most);

    /// Objects to those that claim what this server owns.
    void hear(const std::vector<member>& others);

private:
    void claim();
    void claim_now(std::uint32_t range);
    void find_none();
    bool settle(std::uint32_t range);
    bool hold(std::uint32_t range);
    void drop(std::uint32_t range);
    void object(const member& to);
    bool share(const member& with);
    std::optional<std::uint32_t> some_free_range();
    bool is_contested(std::uint32_t range);

    ring_runtime& runtime_;
    membership_view& view_;
    ring_peers& peers_;
    dissemination& news_;
    probes& probes_;
    event ready_;

    std::mutex lock_;  // Never held across a wait. The view may be locked meanwhile.
    std::vector<std::uint32_t> settled_;  // Ranges it owns by now.
    std::vector<std::uint32_t> shared_;   // Those of them where another server allocates new ids
                                          // ...
    std::vector<std::uint32_t> leaving_;  // ... once this server has other ranges.
    std::size_t owned_again_ = 0;
    std::size_t owned_for_readers_ = 0;  ///< Of these.
    bool claiming_ = false;
    bool found_none_ = false;  // No range was free.
};

}  // namespace amalgam::detail
