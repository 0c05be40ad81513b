#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <amalgam/core/random.hpp>
#include <amalgam/directory/directory_server.hpp>
#include <amalgam/rpc/engine.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/ult.hpp>

#include "directory/membership/member_table.hpp"
#include "directory/membership/procedures.hpp"
#include "directory/membership/suspicions.hpp"
#include "directory/protocol/broadcast_packet.hpp"
#include "directory/protocol/gate.hpp"
#include "directory/protocol/served.hpp"

namespace amalgam::detail {

/// Whether the address is reachable only from this host, or means something else on others.
inline bool is_local(std::string_view address) {
    return address.starts_with("shm:");
}

/// What a ring needs from its server. Any thread.
class ring_user {
public:
    /// The first match here.
    virtual found_values find_here(const attribute_view& query) = 0;
    /// The same for all matches: empty, or the first, with a number for next_here() to get the
    /// others.
    virtual std::optional<first_answer> search_here(const attribute_view& query) = 0;
    virtual next_answer next_here(std::uint64_t search) = 0;
    virtual void stop_here(std::uint64_t search) = 0;
    /// This server owns this id range. Not `fresh`: it belonged to a server that is gone, so no new
    /// ids come from it.
    virtual void own_range(std::uint32_t range, bool fresh) = 0;
    /// Another server now allocates from this range.
    virtual void retire_range(std::uint32_t range) = 0;
    /// The servers known to be alive. Called repeatedly, and when a new one joins.
    virtual void see_servers(const std::vector<std::uint64_t>& keys) = 0;
    virtual void lose_server(std::uint64_t key) = 0;

protected:
    ~ring_user() = default;
};

/// One server's membership in the ring of a network's directory servers. It knows all others,
/// informs and queries them over trees, and detects when its successors in key order fail.
///
/// A tree is built anew for each query and each piece of news: the server responsible for a part of
/// the ring splits it, and delegates each piece to a server in it; if that one does not answer, it
/// handles the piece itself. So trees need no upkeep, and servers need not agree on the members: a
/// message for a part reaches each server in it that is known along the way.
///
/// Ids: a server claims a range that no known server has, tells all, and owns it if nobody objects
/// for a while. An owner objects. Of two claims, the lower key wins. Two servers that came to own
/// one range while unaware of each other both keep it, for the ids already given out; the one with
/// the higher key allocates new ids elsewhere.
/// Owner:   shared with running handlers and ULTs.
/// Threads: any.
class directory_ring : public std::enable_shared_from_this<directory_ring> {
public:
    /// `here` is asked for this server's resources, and told of each id range it owns. It may end
    /// before this does.
    directory_ring(engine& on, const ring_options& options, std::shared_ptr<gate> lets_in,
                   std::weak_ptr<ring_user> here);

    /// Joins, in its own ULT, if the options name others; claims a first range.
    void start();
    void stop() noexcept;

    /// Claims one more range, in its own ULT, unless a claim is pending.
    void want_range();
    /// Claims a range from which contexts here got ids by an earlier server. Parks; false if
    /// another server owns it, or it cannot be claimed.
    bool own_again(std::uint32_t range);
    /// Parks until it owns a range; false on timeout.
    bool wait_until_ready(std::chrono::nanoseconds at_most) { return ready_.wait_for(at_most); }

    /// Finds a resource of another server, by id or attributes.
    part_answer find(resource_id id, const attribute_view& query);

    /// Passes the first answers of all other servers that have any to `take`, as they arrive.
    /// Returns at least how many did not answer.
    using taker = std::function<void(std::vector<first_answer>&&)>;
    std::uint32_t search(const attribute_view& query, const taker& take);
    /// The next answer of one of them; `over` also if it is gone, or silent, as `silent` then says.
    next_answer next(const first_answer& of);
    void stop(const first_answer& what) noexcept;

    std::size_t size() const;                 ///< Number of servers, including this one.
    std::vector<std::uint64_t> keys() const;  ///< Of the other servers.
    std::uint64_t self_key() const;
    std::chrono::milliseconds answer_limit() const noexcept { return options_.answer_limit; }

    /// Parks only for authentication; whether the server is alive shows in the calls. Empty if it
    /// is unknown.
    std::optional<peer> reach(std::uint64_t key,
                              std::chrono::nanoseconds within = std::chrono::seconds(5));
    /// Whether that server, and not another, answers there. Parks.
    bool is_at(const peer& there, std::uint64_t key);
    /// The connection to that peer is lost: its server is looked up anew.
    void forget(const peer& lost);

private:
    // Procedures served: see in_ring.
    std::vector<member> looked();
    void joined(member who);
    void told(ring_part part, ring_news news);
    alive_answer is_alive(std::uint64_t who, std::uint32_t suspected);
    sign looked_at(std::uint64_t who, std::uint32_t suspected);
    ring_news compared(ring_news known);
    part_answer find_in(ring_part part, attribute_view query);
    first_answers search_in(ring_part part, attribute_view query);
    next_answer next_of(std::uint64_t search);
    void stop_here(std::uint64_t search);
    void met(std::vector<std::string> addresses);
    void answered_by(std::uint64_t number, first_answer answer);

    /// Runs work in its own ULT, which ends soon after stop().
    template <typename Work>
    void run(Work work);
    /// The same for work requested by others. Past a limit it is dropped, counted as
    /// "directory.work_dropped"; a later comparison makes up for it.
    template <typename Work>
    void run_for_others(Work work);
    void join();
    void join_by(const std::string& address);
    /// Throws error{invalid} if it listens at no address reachable from other hosts.
    void check_can_be_reached() const;
    void claim();
    void claim_now(std::uint32_t range);
    bool settle(std::uint32_t range);
    bool hold(std::uint32_t range);
    void drop_claim(std::uint32_t range);
    void object(const member& to);
    bool share_range(const member& with);  // With the lock held.
    void keep_looking();
    void look_after_next();
    /// True: it is suspected, and should be checked again soon.
    bool look_after(const member& next);
    sign look_at(const member& who, std::uint32_t suspected, std::chrono::nanoseconds within);
    /// Asks others to check a server that could not be reached directly. Alive if any of them
    /// reaches it. The keys of those that do not are added to `confirmed`.
    sign ask_others_about(const member& who, std::uint32_t suspected,
                          std::chrono::nanoseconds within, std::vector<std::uint64_t>& confirmed);
    std::vector<std::uint64_t> some_others(std::uint64_t without);
    /// Whether nobody reaches it: neither this server nor others.
    bool is_gone(const member& who);
    bool suspect(const member& who, const std::vector<std::uint64_t>& by);
    void tell_that_it_is_suspected(const member& who);
    void compare_with(std::uint64_t key);
    void learn_of_departures(const ring_news& known);
    void look_at_departed();
    void say_that_it_is_here();
    void look_for_lost();

    // Handles broadcasts.
    void listen();
    void keep_announcing();
    void take_packet(const_bytes bytes) noexcept;
    bool is_to_be_met(const broadcast_packet& stranger);
    /// Precondition: is_to_be_met() returned true.
    void meet(const broadcast_packet& stranger);
    void answer(const broadcast_packet& asked);
    /// Servers that did not answer in time are left in `silent`. Empty if the broadcast failed.
    std::optional<std::vector<first_answer>> ask_at_once(broadcast_packet::kind what,
                                                         const attribute_view& query,
                                                         std::vector<std::uint64_t>& silent);
    bool may_broadcast() const;
    /// Notes whether the medium missed something that a tree found.
    void note_broadcast(bool missed);
    void rest_from_broadcasts();
    std::optional<std::uint32_t> search_by_broadcast(const attribute_view& query,
                                                     const taker& take);

    /// Excludes that key.
    std::vector<delegation> cut(const ring_part& part, std::uint64_t without) const;
    void check_is_in(const ring_part& part) const;
    part_answer find_behind(const ring_part& part, const attribute_view& query);
    std::uint32_t search_behind(const ring_part& part, const attribute_view& query,
                                const taker& take);
    ring_part all_others() const;
    ring_news learn(const ring_news& news);
    /// Somebody reported a version of this server that it never had. False: it is past that
    /// version. With the lock held.
    bool contradict(std::uint32_t version);
    /// Soon, together with other news by then.
    void tell_all(const ring_news& news);
    void tell_now();
    void pass_on(const ring_part& part, const ring_news& news);
    void remove(const departure& what);
    std::uint64_t digest() const;  // With the lock held.
    ring_news all();
    std::optional<std::uint32_t> some_free_range();
    bool is_contested(std::uint32_t range) const;
    member self() const;
    template <typename Start>
    class asking;  // See asking.hpp.
    std::chrono::nanoseconds left() const;

    /// A broadcast query, until it has its answers.
    struct open_question {
        bool all = false;
        std::vector<std::uint64_t> silent;  ///< Sorted.
        std::vector<first_answer> answers;
        event enough;
    };

    engine& on_;
    const ring_options options_;
    const std::shared_ptr<gate> gate_;
    const std::weak_ptr<ring_user> here_;
    served_members served_{on_, gate_};
    const procedure<in_ring::members> members_;
    const procedure<in_ring::join> join_;
    const procedure<in_ring::tell> tell_;
    const procedure<in_ring::ping> ping_;
    const procedure<in_ring::ping_req> ping_req_;
    const procedure<in_ring::compare> compare_;
    const procedure<in_ring::find> find_;
    const procedure<in_ring::search> search_;
    const procedure<in_ring::next> next_;
    const procedure<in_ring::stop> stop_;
    const procedure<in_ring::meet> meet_;
    const procedure<in_ring::answer> answer_;
    const procedure<at_directory::find> find_there_;
    counter& packets_refused_;  // Malformed, or without proof of the secret.
    counter& packets_dropped_;  // Too many.
    counter& work_dropped_;     // Others requested too much work.
    std::atomic<int> hearing_{0};
    std::atomic<int> works_for_others_{0};
    event has_met_;
    event ready_;
    event stopping_;

    mutable std::mutex lock_;  // Never held across a wait.
    seeded_random chance_;
    member self_;
    std::vector<std::uint32_t> settled_;  // Ranges it owns by now.
    std::vector<std::uint32_t> shared_;   // Those of them where another server allocates new ids
                                          // ...
    std::vector<std::uint32_t> leaving_;  // ... once this server has other ranges.
    member_table others_;
    std::unordered_map<std::uint64_t, peer> reached_;
    std::size_t owned_again_ = 0;
    ring_news untold_;
    bool telling_ = false;
    bool claiming_ = false;
    bool looking_ = false;
    std::set<std::uint64_t> looked_after_;  // Being checked by a ULT now.
    suspicions suspected_;
    local_health health_;
    std::map<std::uint64_t, std::uint32_t> said_gone_;  // The reporter may be cut off itself.
    bool looking_at_departed_ = false;
    unsigned meeting_ = 0;                                   // Number of strangers being met.
    std::unordered_map<std::uint64_t, unsigned> strangers_;  // How often each was heard.
    std::unordered_map<std::uint64_t, std::shared_ptr<open_question>> questions_;
    unsigned missed_ = 0;  // Consecutive missed broadcasts.
    clock::time_point rests_until_{};
};

template <typename Work>
void directory_ring::run(Work work) {
    amalgam::post(on_.pool(), [self = shared_from_this(), work = std::move(work)]() mutable {
        if (!self->stopping_.is_set()) work(*self);
    });
}

template <typename Work>
void directory_ring::run_for_others(Work work) {
    constexpr int most = 1024;
    struct place {
        std::atomic<int>& taken;
        explicit place(std::atomic<int>& all) noexcept : taken(all) { ++taken; }
        ~place() { --taken; }
    };
    const auto mine = std::make_shared<place>(works_for_others_);
    if (works_for_others_ > most) return work_dropped_.add();
    run([mine, work = std::move(work)](directory_ring& me) mutable { work(me); });
}

}  // namespace amalgam::detail
