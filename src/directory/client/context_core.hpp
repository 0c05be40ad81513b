#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <amalgam/bulk/bulk.hpp>
#include <amalgam/bulk/bulk_cache.hpp>
#include <amalgam/core/metrics.hpp>
#include <amalgam/directory/context.hpp>
#include <amalgam/directory/directory_server.hpp>
#include <amalgam/rpc/engine.hpp>
#include <amalgam/rpc/extension/mail.hpp>
#include <amalgam/tasks/event.hpp>

#include "directory/client/locations.hpp"
#include "directory/client/send_lanes.hpp"
#include "directory/client/watch_state.hpp"
#include "directory/protocol/procedures.hpp"
#include "directory/protocol/role_policy.hpp"
#include "directory/protocol/served.hpp"
#include "directory/server/message_store.hpp"

namespace amalgam::detail {

/// Implementation of a context.
///
/// Owner:   shared by the context, its resources and searches, and running handlers.
/// Threads: any.
class context_core final : public std::enable_shared_from_this<context_core>, private mail_sink {
public:
    using nanoseconds = std::chrono::nanoseconds;
    using time_point = std::chrono::steady_clock::time_point;

    /// On an engine of the user's, which outlives all use of this.
    context_core(engine& on, context_options options);
    /// On an engine of its own, which is freed with this: whoever still uses it after end() finds
    /// it stopped.
    context_core(std::unique_ptr<engine> own, context_options options);

    /// Registers with the directory. Failure: throws; then it has ended.
    void start();
    /// Ends everything that waits; its resources disappear for others.
    void close() noexcept;
    /// close(), and its own engine ends.
    void end() noexcept;

    engine& where() noexcept { return on_; }
    resource_id id() const noexcept { return id_; }
    /// Throws error{closed}.
    void check_not_closed() const {
        if (closed_) [[unlikely]]
            throw_closed();
    }
    /// Runs an operation of the user's. Whatever it throws because the context closes meanwhile
    /// becomes error{closed}.
    template <typename Work>
    decltype(auto) while_open(Work work) const {
        check_not_closed();
        try {
            return work();
        } catch (const error& why) {
            throw_if_closed(why);
            throw;
        }
    }

    resource_id add(const attribute_view& what);
    void remove(resource_id which) noexcept;
    void remove_or_throw(resource_id which);
    void set(resource_id which, const attribute_view& changes);
    /// The peer that owns the resource, by the path for small messages.
    peer lookup(resource_id which);
    /// The resource found, if any, and at least how many directories did not answer.
    std::pair<std::optional<found_resource>, std::uint32_t> find(resource_id which,
                                                                 attribute_list query);
    std::uint32_t start_search(const attribute_view& query);
    /// `silent`: at least this many directories did not give all their answers.
    std::optional<found_resource> next(std::uint32_t search, const attribute_list& query,
                                       std::uint32_t& silent);
    void stop_search(std::uint32_t search) noexcept;
    std::shared_ptr<watch_state> watch(attribute_list query, watch_state::function what);
    void unwatch(std::uint32_t number) noexcept;

    message_buffer take_buffer(std::size_t bytes);
    void send(resource_id from, resource_id to, std::int32_t tag, const_bytes content,
              nanoseconds within);
    /// Queues behind everything started earlier from `from` to `to`. Does not wait.
    void start_send(resource_id from, resource_id to, std::shared_ptr<queued_send> what);
    future<void> start_send(resource_id from, resource_id to, std::int32_t tag,
                            message_buffer content);
    /// Parks until every started message has been sent or has failed. Drops what this context has
    /// received, so that two contexts waiting for each other's room both finish.
    void finish_sends();
    /// Throws error{invalid} unless it is a resource of this context.
    void check_own(resource_id which) const;
    /// Waits until the path to that resource is known. Throws error{not_found}.
    void find_way(resource_id which) { (void)locate(which, traffic::small); }
    void post(resource_id from, resource_id to, std::int32_t tag, const_bytes content);
    void post(resource_id from, resource_id to, std::int32_t tag, message_buffer content);
    /// `to` none: any resource of the context. Empty on timeout.
    std::optional<resource_message> receive(resource_id to, const message_choice& which,
                                            nanoseconds within);
    message_store& messages() noexcept { return messages_; }

    /// For tests: where it knows resources to be.
    locations& known_places() noexcept { return where_; }

private:
    [[noreturn]] static void throw_closed();
    void throw_if_closed(const error& why) const;

    // Procedures served: see at_context.
    errc message(resource_id from, resource_id to, std::int32_t tag, const_bytes content);
    errc message_in_turn(resource_id from, resource_id to, std::int32_t tag, const_bytes content,
                         bool begins);
    /// A posted message of up to eager_bytes: see at_context::mail.
    void on_mail(const peer& from, const_bytes content) noexcept override;
    errc arrived_alone(const peer& by, resource_id from, resource_id to, std::int32_t tag,
                       const_bytes content);
    void tell_refused(const peer& by, const at_context::mail_header& head, errc why) noexcept;
    static void lost_mail(const at_context::mail_header& head, const std::exception& why) noexcept;
    void post_short(resource_id from, resource_id to, std::int32_t tag, const_bytes content);
    errc long_message(resource_id from, resource_id to, std::int32_t tag, amalgam::bulk content);
    errc room(resource_id to, std::uint64_t bytes);
    void undelivered(resource_id from, resource_id to, std::int32_t tag, errc why);
    bool has_key(const_bytes key);
    void report_undelivered(const undelivered_message& which) noexcept;
    void change_told(std::uint32_t watch, resource_change::kind what, found_values which);
    void dropped();

    void change(std::uint32_t watch, resource_change::kind what, const found_values& which);
    void open_at(const std::string& directory, bool start);
    peer directory() const;
    void set_directory(const peer& there);

    // After loss of the directory: see context_reopen.cpp.
    void keep(resource_id id, const attribute_view& what);
    void keep_not(resource_id id) noexcept;
    void wait_for_directory();
    bool begin_to_reopen();  // With directory_lock_ held. False if it must not be reopened.
    void reopen();
    bool return_to_directory();
    void give_up_directory() noexcept;
    enum class attempt : std::uint8_t { done, failed, missing, refused };
    attempt try_to_reopen();
    static attempt failure(errc why) noexcept;
    attempt reopen_at(const peer& there, resource_id which, const attribute_view& what);
    attempt watch_again_at(const peer& there);
    bool end_reopening(std::uint64_t kept);
    void settle_watches();
    result<resource_id> try_open(const std::string& directory);
    attribute_list describe() const;
    void check_open();
    void lose(const peer& who, status why);
    /// The peer to reach that resource's context. Throws error{not_found}.
    peer locate(resource_id which, traffic what) {
        if (const peer* const last = where_.find_last(which, what)) [[likely]]
            return *last;
        return locate_anew(which, what);
    }
    peer locate_anew(resource_id which, traffic what);
    /// What the directory says of a sender's resource.
    struct owner_found {
        bool may_exist = true;     ///< False: there is no such resource.
        bool would_prove = false;  ///< It listens at tcp+tls:// or its kind.
        std::optional<peer> at;    ///< Empty: it listens nowhere, or could not be reached.
    };
    /// The same, by asking the directory, whatever is known. `owner`: the resource sends, see
    /// locations::learn(); it is filled in.
    peer look_up(resource_id which, traffic what, owner_found* owner = nullptr);
    /// Paths to another context, chosen by the options.
    ways_there ways_to(const peer& context);
    /// What is known of a peer that sends as a resource.
    enum class sender : std::uint8_t {
        good,     ///< It may.
        other,    ///< The directory says that another, who proved who he is, has it.
        unknown,  ///< The directory has not been asked, or not the owner, see has_new_key().
    };
    /// `good` is learnt, for answers.
    sender judge(resource_id which, const peer& by) {
        const last_sender& last = last_sender_;
        const bool is_same =
            which == last.which && by == last.by && where_.changes() == last.changes;
        return is_same ? sender::good : judge_anew(which, by);
    }
    sender judge_anew(resource_id which, const peer& by);
    sender learn_sender(resource_id which, const peer& by);
    sender compare_with_owner(resource_id which, const peer& by);
    /// The same, where the directory said who has it.
    sender compare_with_owner(resource_id which, const peer& by, const peer& owner);

    /// A sender about whom the directory is asked. What he sends meanwhile is in messages_, hidden.
    struct asked_sender {
        asked_sender(std::uint64_t hidden_for, resource_id from, const peer& sent_by,
                     const identity& its)
            : number(hidden_for), which(from), by(sent_by), who(its) {}
        const std::uint64_t number;  ///< Of what is hidden.
        const resource_id which;
        const peer by;
        const identity who;
        errc verdict = errc::canceled;  ///< `ok` or `denied`, unless this engine stopped. Once ...
        event settled;
    };
    /// With asked_lock_ held. Null: too many are asked about. `who` is by.who(), which may wait for
    /// the engine's stream, as nobody may who holds a lock that the stream takes.
    std::shared_ptr<asked_sender> ask_about(resource_id which, const peer& by, const identity& who);
    std::shared_ptr<asked_sender> asked_about(resource_id which, const peer& by) const;
    /// The oldest that must be settled before another one may be asked about that sends from there;
    /// null if none must.
    std::shared_ptr<asked_sender> asked_before(const peer& by, const identity& who) const;
    void settle(asked_sender& whom) noexcept;
    errc hide(const peer& by, resource_message& message, message_store::turn in);
    errc wait_for_verdict(resource_id which, const peer& by, time_point deadline);
    /// Failure: throws error{canceled} if this engine stops.
    owner_found look_up_sender(resource_id which);
    /// Whether the owner of a resource says that this is a key of his.
    bool has_new_key(const peer& owner, const identity& who);
    void tell_undelivered(const peer& by, resource_id from, resource_id to, std::int32_t tag,
                          errc why);
    part_answer ask(resource_id which, const attribute_view& query);
    /// Calls `deliver(peer)` until the message's fate is known. Repeats it when the location was
    /// stale or the receiver had no room.
    template <typename Deliver>
    void send_by(resource_id to, traffic what, std::size_t bytes, time_point deadline,
                 Deliver deliver);
    /// Whether to look the resource up again; if so, its location is forgotten.
    bool may_be_elsewhere(resource_id to, const peer& there, errc became);
    static error not_arrived(resource_id to, const result<errc>& became);
    static void end_unsent(queued_send& what, resource_id to, const result<errc>& became);
    void send_now(resource_id from, resource_id to, std::int32_t tag, const_bytes content,
                  time_point deadline);
    void post_now(resource_id from, resource_id to, std::int32_t tag, message_buffer content);
    /// A descriptor that keeps the buffer; of a copy if it is registered with another engine.
    amalgam::bulk lend(bulk_buffer content);
    class lane_runner;
    class lane_start;
    /// By who starts it, without a ULT. False: it cannot be, and must be queued in its lane.
    bool send_at_once(resource_id from, resource_id to, const send_lanes::item& what);
    void answered(resource_id from, resource_id to, const send_lanes::place& which,
                  result<errc> became) noexcept;
    bool is_short(const queued_send& what) const noexcept {
        return what.what == queued_send::kind::message && what.bytes <= options_.eager_bytes;
    }
    /// Whether its call goes in one message.
    bool fits_a_message(const queued_send& what, const peer& there) const noexcept;
    void start_lane(resource_id from, resource_id to);
    void run_lane(resource_id from, resource_id to) noexcept;
    void send_long(resource_id from, resource_id to, std::int32_t tag, const amalgam::bulk& content,
                   time_point deadline);
    nanoseconds left_until(time_point deadline) const;

    std::unique_ptr<engine> own_;  // First, so that all else goes before it.
    engine& on_;
    context_options options_;  // Constant once constructed.
    const std::shared_ptr<role_policy> lets_in_;
    std::unique_ptr<directory_server> here_;  // For options.directory "here".
    bool is_here_ = false;                    // Constant once started, unlike here_.
    std::string directory_address_;
    bool starts_directory_ = false;
    mutable std::mutex directory_lock_;
    peer directory_;
    bool directory_gone_ = false;
    resource_id id_ = resource_id::none;
    std::atomic<bool> lost_{false};  // True from loss of the directory until it is found again.
    std::atomic<bool> closed_{false};
    served_members served_{on_, lets_in_};
    peer_lost_subscription losses_;

    const procedure<at_directory::add> add_;
    const procedure<at_directory::remove> remove_;
    const procedure<at_directory::set> set_;
    const procedure<at_directory::find> find_;
    const procedure<at_directory::find_long> find_long_;
    const procedure<at_directory::find_elsewhere> find_elsewhere_;
    const procedure<at_directory::search> search_;
    const procedure<at_directory::next> next_;
    const procedure<at_directory::stop> stop_;
    const procedure<at_directory::watch> watch_;
    const procedure<at_directory::unwatch> unwatch_;
    const procedure<at_context::message> message_;
    const procedure<at_context::message_in_turn> message_in_turn_;
    const procedure<at_context::long_message> long_message_;
    const procedure<at_context::room> room_;
    const procedure<at_context::undelivered> undelivered_;
    const procedure<at_context::has_key> has_key_;

    buffer_pool short_buffers_;
    bulk_cache long_buffers_;
    message_store messages_;
    locations where_;
    /// Who sent last, and from where; the stream's. The next message mostly comes from there, too.
    struct last_sender {
        resource_id which = resource_id::none;
        peer by;
        std::uint64_t changes = 0;
    } last_sender_;
    mutable std::mutex asked_lock_;
    std::vector<std::shared_ptr<asked_sender>> asked_;  // At most max_senders_looked_up.
    std::atomic<std::size_t> asked_count_{0};           // Of asked_.
    std::uint64_t last_asked_ = 0;
    counter& forged_;  // Messages of who does not own their sender.
    send_lanes lanes_{closed_};

    mutable std::mutex kept_lock_;
    std::unordered_map<resource_id, attribute_list> kept_;  // Resources registered by this context.
    attribute_list own_changes_;                            // Changes to its own attributes.
    std::vector<resource_id> removed_;                      // Removed while the directory was lost.
    std::uint64_t kept_changes_ = 0;
    bool reopens_ = false;
    event reopened_;  // Or abandoned.
    event closing_;
    std::atomic<std::uint32_t> last_search_{0};       // Over all its directories ...
    std::atomic<std::uint32_t> searches_of_lost_{0};  // ... except the current one.

    std::mutex watches_lock_;
    std::uint32_t last_watch_ = 0;
    std::unordered_map<std::uint32_t, std::shared_ptr<watch_state>> watches_;
    // Watches that were restarted, and the number from doubt().
    std::vector<std::pair<std::shared_ptr<watch_state>, unsigned>> in_doubt_;
    metric_registry::registration numbers_;
};

}  // namespace amalgam::detail
