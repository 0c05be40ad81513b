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

#include "directory/broadcast_packet.hpp"
#include "directory/gate.hpp"
#include "directory/member_table.hpp"
#include "directory/ring_procedures.hpp"
#include "directory/served.hpp"
#include "directory/suspicions.hpp"

namespace amalgam::detail {

/// Only this host can reach that address, or one of the same name on another.
inline bool is_local(std::string_view address) {
    return address.starts_with("shm:");
}

/// What a ring wants of the server that it is part of. Any thread.
class ring_user {
public:
    /// The first resource here that fits.
    virtual found_values find_here(const attribute_view& query) = 0;
    /// The same of all: nothing, or the first, with a number that next_here() gives the others by.
    virtual std::optional<first_answer> search_here(const attribute_view& query) = 0;
    virtual next_answer next_here(std::uint64_t search) = 0;
    virtual void stop_here(std::uint64_t search) = 0;
    /// This range of ids belongs to this server. Not `fresh`: no new ids come from it; it was
    /// another server's, which is gone.
    virtual void own_range(std::uint32_t range, bool fresh) = 0;
    /// It gives out no more ids of that one: another server does.
    virtual void retire_range(std::uint32_t range) = 0;
    /// Told again and again, and when one has come: who is there.
    virtual void see_servers(const std::vector<std::uint64_t>& keys) = 0;
    virtual void lose_server(std::uint64_t key) = 0;

protected:
    ~ring_user() = default;
};

/// The directory servers of a network, as one of them takes part: it knows all others, tells and
/// asks them over trees, and notices when the next ones in the ring of their keys go.
///
/// A tree is made anew for each query and piece of news: who sees to a part of the ring cuts it
/// into smaller ones, and has one server in each see to that; where that does not answer, it does.
/// So it needs no upkeep, and nobody has to know the same members as the others: what lies in a
/// part reaches each server in it that those on the way know.
///
/// Ids: a server claims a range that nobody has who is known, tells all, and owns it when after a
/// while nobody has objected. Of two that claim one the lower key has it; who owns it objects. Two
/// that came to own the same one while they did not know each other keep it both, for the ids that
/// they gave out; the one with the higher key takes new ids elsewhere.
/// Owner:   shared with the handlers and ULTs that run.
/// Threads: any.
class directory_ring : public std::enable_shared_from_this<directory_ring> {
public:
    /// `here` is asked for what this server has, and told of each range of ids that is its own. It
    /// may end before this does.
    directory_ring(engine& on, const ring_options& options, std::shared_ptr<gate> lets_in,
                   std::weak_ptr<ring_user> here);

    /// Joins, in a ULT of its own, when the options name others; claims a first range.
    void start();
    void stop() noexcept;

    /// Claims one more range, in a ULT of its own, unless that is under way.
    void want_range();
    /// Claims a range that contexts here have ids of, from the server they had before. Parks; false
    /// when another server owns it, or it cannot be had.
    bool own_again(std::uint32_t range);
    /// It owns some. Parks; false after that time.
    bool wait_until_ready(std::chrono::nanoseconds at_most) { return ready_.wait_for(at_most); }

    /// A resource that another server has; by its id, or what it is.
    part_answer find(resource_id id, const attribute_view& query);

    /// The first answers of all other servers that have any are given to `take`, as they come.
    /// Returns how many, at least, did not answer.
    using taker = std::function<void(std::vector<first_answer>&&)>;
    std::uint32_t search(const attribute_view& query, const taker& take);
    /// The next answer of one of them; over also when it is gone, or silent, as it says then.
    next_answer next(const first_answer& of);
    void stop(const first_answer& what) noexcept;

    std::size_t size() const;                 ///< Servers, itself included.
    std::vector<std::uint64_t> keys() const;  ///< Of the others.
    std::uint64_t self_key() const;
    std::chrono::milliseconds answer_limit() const noexcept { return options_.answer_limit; }

    /// Waits only to show the secret; whether it is still there shows in the calls. Nothing: it is
    /// not known.
    std::optional<peer> reach(std::uint64_t key,
                              std::chrono::nanoseconds within = std::chrono::seconds(5));
    /// That server answers there, and not another one. Parks.
    bool is_at(const peer& there, std::uint64_t key);
    /// The connection to that one is lost: whoever it was is looked up anew.
    void forget(const peer& lost);

private:
    // What it serves: see in_ring.
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

    /// In a ULT of its own, which ends soon after stop().
    template <typename Work>
    void run(Work work);
    /// The same for what others have it do; what is more than so much at once is left out, counted
    /// as "directory.work_dropped": they compare, sooner or later.
    template <typename Work>
    void run_for_others(Work work);
    void join();
    void join_by(const std::string& address);
    /// Throws error{invalid} when it listens at no address that another host could reach.
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
    /// True: it is suspected to be gone, and is to be looked at again soon.
    bool look_after(const member& next);
    sign look_at(const member& who, std::uint32_t suspected, std::chrono::nanoseconds within);
    /// What those say who could not be reached directly: alive, if any of some others does; the
    /// keys of who could not reach it, either, are added to `confirmed`.
    sign ask_others_about(const member& who, std::uint32_t suspected,
                          std::chrono::nanoseconds within, std::vector<std::uint64_t>& confirmed);
    std::vector<std::uint64_t> some_others(std::uint64_t without);
    /// Nobody reaches it, neither this server nor others.
    bool is_gone(const member& who);
    bool suspect(const member& who, const std::vector<std::uint64_t>& by);
    void tell_that_it_is_suspected(const member& who);
    void compare_with(std::uint64_t key);
    void learn_of_departures(const ring_news& known);
    void look_at_departed();
    void say_that_it_is_here();
    void look_for_lost();

    // What is broadcast.
    void listen();
    void keep_announcing();
    void take_packet(const_bytes bytes) noexcept;
    bool is_to_be_met(const broadcast_packet& stranger);
    /// Precondition: is_to_be_met() has said so.
    void meet(const broadcast_packet& stranger);
    void answer(const broadcast_packet& asked);
    /// Who was asked and has not answered in time is left in `silent`. Nothing: it could not be
    /// broadcast.
    std::optional<std::vector<first_answer>> ask_at_once(broadcast_packet::kind what,
                                                         const attribute_view& query,
                                                         std::vector<std::uint64_t>& silent);
    bool may_broadcast() const;
    /// Whether the medium did not tell what a tree did.
    void note_broadcast(bool missed);
    void rest_from_broadcasts();
    std::optional<std::uint32_t> search_by_broadcast(const attribute_view& query,
                                                     const taker& take);

    /// Without that key.
    std::vector<delegation> cut(const ring_part& part, std::uint64_t without) const;
    void check_is_in(const ring_part& part) const;
    part_answer find_behind(const ring_part& part, const attribute_view& query);
    std::uint32_t search_behind(const ring_part& part, const attribute_view& query,
                                const taker& take);
    ring_part all_others() const;
    ring_news learn(const ring_news& news);
    /// Somebody told of that version of this server, which it never was in. False: it was in a
    /// later one. With the lock held.
    bool contradict(std::uint32_t version);
    /// Soon, with what else there is to tell by then.
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
    class asking;  // See ring_asking.hpp.
    std::chrono::nanoseconds left() const;

    /// A question that was broadcast, until it has its answers.
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
    const procedure<in_ring::look> look_;
    const procedure<in_ring::join> join_;
    const procedure<in_ring::tell> tell_;
    const procedure<in_ring::alive> alive_;
    const procedure<in_ring::look_at> look_at_;
    const procedure<in_ring::compare> compare_;
    const procedure<in_ring::find> find_;
    const procedure<in_ring::search> search_;
    const procedure<in_ring::next> next_;
    const procedure<in_ring::stop> stop_;
    const procedure<in_ring::meet> meet_;
    const procedure<in_ring::answer> answer_;
    const procedure<at_directory::find> find_there_;
    counter& packets_refused_;  // Not of this protocol, or without the secret.
    counter& packets_dropped_;  // There were too many.
    counter& work_dropped_;     // Others asked for too much.
    std::atomic<int> hearing_{0};
    std::atomic<int> works_for_others_{0};
    event has_met_;
    event ready_;
    event stopping_;

    mutable std::mutex lock_;  // Never held across a wait.
    seeded_random chance_;
    member self_;
    std::vector<std::uint32_t> settled_;  // Ranges that are its own by now.
    std::vector<std::uint32_t> shared_;   // Those of them where another one gives out new ids ...
    std::vector<std::uint32_t> leaving_;  // ... as soon as this one has others.
    member_table others_;
    std::unordered_map<std::uint64_t, peer> reached_;
    std::size_t owned_again_ = 0;
    ring_news untold_;
    bool telling_ = false;
    bool claiming_ = false;
    bool looking_ = false;
    std::set<std::uint64_t> looked_after_;  // By a ULT, at this moment.
    suspicions suspected_;
    local_health health_;
    std::map<std::uint64_t, std::uint32_t> said_gone_;  // By one that may have been cut off.
    bool looking_at_departed_ = false;
    unsigned meeting_ = 0;                                   // So many strangers.
    std::unordered_map<std::uint64_t, unsigned> strangers_;  // How often each was heard.
    std::unordered_map<std::uint64_t, std::shared_ptr<open_question>> questions_;
    unsigned missed_ = 0;  // So many broadcasts in turn.
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
