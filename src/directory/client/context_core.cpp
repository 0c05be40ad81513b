#include "directory/client/context_core.hpp"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include <fmt/format.h>

#include <amalgam/core/detail/in_words.hpp>
#include <amalgam/core/log.hpp>
#include <amalgam/directory/host_directory.hpp>
#include <amalgam/rpc/extension/early_end.hpp>
#include <amalgam/rpc/extension/inside.hpp>
#include <amalgam/rpc/metrics.hpp>
#include <amalgam/tasks/ult.hpp>

#include "directory/limits.hpp"
#include "directory/server/start_directory.hpp"

namespace amalgam::detail {

namespace {

constexpr const char* directory_variable = "AMALGAM_DIRECTORY";

/// Whether a call was not made, or not waited for, because of where it was made: in a tasklet or
/// call_then(), or in a ULT that is canceled. Posting works there.
bool could_not_wait(status how) noexcept {
    return how == errc::invalid || how == errc::canceled;
}

}  // namespace

context_core::context_core(engine& on, context_options options)
    : on_(on),
      options_(std::move(options)),
      lets_in_(std::make_shared<role_policy>(on, "context")),
      add_(on.procedure<at_directory::add>(at_directory::add_name)),
      remove_(on.procedure<at_directory::remove>(at_directory::remove_name)),
      set_(on.procedure<at_directory::set>(at_directory::set_name)),
      find_(on.procedure<at_directory::find>(at_directory::find_name)),
      find_long_(on.procedure<at_directory::find_long>(at_directory::find_long_name)),
      find_elsewhere_(
          on.procedure<at_directory::find_elsewhere>(at_directory::find_elsewhere_name)),
      search_(on.procedure<at_directory::search>(at_directory::search_name)),
      next_(on.procedure<at_directory::next>(at_directory::next_name)),
      stop_(on.procedure<at_directory::stop>(at_directory::stop_name)),
      watch_(on.procedure<at_directory::watch>(at_directory::watch_name)),
      unwatch_(on.procedure<at_directory::unwatch>(at_directory::unwatch_name)),
      message_(on.procedure<at_context::message>(at_context::message_name)),
      message_in_turn_(on.procedure<at_context::message_in_turn>(at_context::message_in_turn_name)),
      long_message_(on.procedure<at_context::long_message>(at_context::long_message_name)),
      room_(on.procedure<at_context::room>(at_context::room_name)),
      undelivered_(on.procedure<at_context::undelivered>(at_context::undelivered_name)),
      has_key_(on.procedure<at_context::has_key>(at_context::has_key_name)),
      long_buffers_(on, {.max_bytes = std::max(std::size_t{1} << 30, 4 * options_.store_bytes)}),
      messages_(options_.store_bytes),
      forged_(on.counters().get("context.forged")) {
    if (!options_.choose) options_.choose = choose_way;
    refuse_secret();
    numbers_ = metrics_of(on).add_group([this](metric_writer& into) {
        const auto write = [&](const char* what, std::size_t known) {
            into.add({"amalgam_context_known_locations",
                      "Entries of the table by which a context reaches others, by what they are "
                      "of."},
                     {{"of", what}}, static_cast<double>(known));
        };
        write("resources", where_.resources());
        write("contexts", where_.contexts());
    });
}

context_core::context_core(std::unique_ptr<engine> own, context_options options)
    : context_core(*own, std::move(options)) {
    own_ = std::move(own);
}

void context_core::start() {
    try {
        const auto serve = [&](std::string_view name, auto what, handler run = handler::inline_) {
            served_.serve(shared_from_this(), name, what, run, directory_role::anyone);
        };
        define_first(on_.core(), at_context::change_name, "a context",
                     [&] { serve(at_context::change_name, &context_core::change_told); });
        serve(at_context::dropped_name, &context_core::dropped);
        serve(at_context::message_name, &context_core::message);
        serve(at_context::message_in_turn_name, &context_core::message_in_turn);
        serve(at_context::long_message_name, &context_core::long_message, handler::ult);
        serve(at_context::room_name, &context_core::room, handler::ult);
        serve(at_context::undelivered_name, &context_core::undelivered);
        serve(at_context::has_key_name, &context_core::has_key);
        losses_ = on_.on_peer_lost([self = weak_from_this()](const peer& who, status why) {
            if (const auto me = self.lock()) me->lose(who, why);
        });
        std::string directory = options_.directory;
        if (const char* const said = std::getenv(directory_variable); said && directory.empty())
            directory = said;
        is_here_ = directory == "here";
        if (is_here_) {
            here_ = std::make_unique<directory_server>(on_);
            open_at({}, false);
        } else if (directory.empty()) {
            open_at(std::string(host_directory), true);
        } else {
            open_at(directory, false);
        }
        messages_.open(id_);
        accept_mail(on_.core(), std::shared_ptr<mail_sink>(shared_from_this(), this));
    } catch (...) {
        end();
        throw;
    }
}

attribute_list context_core::describe() const {
    attribute_list what = options_.what;
    std::string addresses;
    for (const std::string& each : on_.addresses())
        addresses += each + '\n';
    what.add(context_addresses, addresses);
    const std::lock_guard one(kept_lock_);
    return what.set_all(own_changes_);
}

result<resource_id> context_core::try_open(const std::string& directory) {
    const result<peer> there =
        directory.empty() ? result<peer>(self_of(on_.core())) : on_.try_lookup(directory);
    if (!there) return there.why();
    const auto open = on_.procedure<at_directory::open>(at_directory::open_name);
    auto answer = open.on(*there).within(limits::answer_limit).try_call(describe());
    // `disconnected` means that the peer was known to be gone before the call.
    if (!answer && answer.code() == errc::disconnected)
        return {errc::unreachable, answer.sentence()};
    if (!answer) return {answer.code().code, answer.sentence()};
    if (answer->code != errc::ok) return {answer->code, answer->sentence};
    set_directory(*there);
    return answer->value;
}

void context_core::open_at(const std::string& directory, bool start) {
    directory_address_ = directory;
    starts_directory_ = start;
    result<resource_id> id = try_open(directory);
    const bool starts = !id && id.code() == errc::unreachable && start;
    if (starts) start_directory(directory);
    const time_point until = on_.now() + (starts ? limits::start_limit : limits::reach_limit);
    // A starting server listens before it serves.
    const auto may_come = [&] {
        return !id && (id.code() == errc::not_found || (starts && id.code() == errc::unreachable));
    };
    while (may_come() && on_.now() < until) {
        this_task::sleep_for(std::chrono::milliseconds(2));
        id = try_open(directory);
    }
    if (!id)
        throw error(id.code(),
                    fmt::format("cannot open a context at the directory {}: {}",
                                directory.empty() ? "of this process" : directory, id.sentence()));
    id_ = *id;
}

void context_core::close() noexcept {
    if (closed_.exchange(true)) return;
    closing_.set();
    reopened_.set();
    try {
        if (id_ != resource_id::none && !lost_) {
            const auto close = on_.procedure<at_directory::close>(at_directory::close_name);
            const auto closed = close.on(directory()).within(limits::answer_limit).try_call(id_);
            if (could_not_wait(closed.code())) close.on(directory()).post(id_);
        }
    } catch (const std::exception&) {
        // The directory is gone, and so are our resources; or it will notice that we are.
    }
    losses_.end();
    lets_in_->end();
    refuse_mail(on_.core(), this);
    served_.end();  // Last, as its first name keeps another context away.
    here_.reset();
    messages_.close_all();
}

void context_core::end() noexcept {
    close();
    if (own_ != nullptr) end_early(own_->core(), shared_from_this());
}

[[gnu::noinline]] void context_core::throw_closed() {
    throw error(errc::closed, context_is_closed);
}

void context_core::throw_if_closed(const error& why) const {
    // A ULT that is canceled must learn of that.
    if (why.code() == errc::canceled && this_task::in_ult()) return;
    check_not_closed();
}

void context_core::check_open() {
    if (lost_ && !closed_) wait_for_directory();
    check_not_closed();
    if (lost_)
        throw error(errc::disconnected,
                    "the directory of this context is gone, with everything registered there; make "
                    "a new context");
}

void context_core::lose(const peer& who, status) {
    where_.forget(who);
    bool reopens = false;
    {
        const std::lock_guard one(directory_lock_);
        if (!(who == directory_)) return;
        directory_gone_ = true;
        if (lost_.exchange(true)) return;
        reopens = begin_to_reopen();
    }
    log(log_level::warn, "directory", "lost contact with the directory",
        {{"context", number(id_)}});
    if (!reopens) change(0, resource_change::kind::ended, {});
}

void context_core::dropped() {
    bool reopens = false;
    {
        const std::lock_guard one(directory_lock_);
        if (!(call_context::current().from() == directory_)) return;
        directory_gone_ = true;
        if (lost_.exchange(true)) return;
        reopens = begin_to_reopen();
    }
    log(log_level::warn, "directory", "the directory has ended, or considered this process gone",
        {{"context", number(id_)}});
    if (!reopens) change(0, resource_change::kind::ended, {});
}

resource_id context_core::add(const attribute_view& what) {
    check_open();
    const resource_id id = add_.on(directory())(id_, what).take();
    messages_.open(id);
    keep(id, what);
    return id;
}

void context_core::remove_or_throw(resource_id which) {
    check_open();
    remove_.on(directory())(id_, which).take();
    keep_not(which);
    messages_.close(which);
}

void context_core::set(resource_id which, const attribute_view& changes) {
    check_open();
    set_.on(directory())(id_, which, changes).take();
    const std::lock_guard one(kept_lock_);
    if (which == id_) {
        own_changes_.set_all(changes);
    } else if (const auto at = kept_.find(which); at != kept_.end()) {
        at->second.set_all(changes);
    } else {
        return;
    }
    ++kept_changes_;
}

peer context_core::lookup(resource_id which) {
    check_not_closed();
    return locate(which, traffic::small);
}

void context_core::remove(resource_id which) noexcept {
    messages_.close(which);
    keep_not(which);
    if (closed_ || lost_) return;
    try {
        auto removed = remove_.on(directory()).try_call(id_, which);
        if (could_not_wait(removed.code())) return remove_.on(directory()).post(id_, which);
        std::move(removed).value().take();
    } catch (const std::exception& why) {
        log(log_level::debug, "directory", "cannot delete a resource",
            {{"resource", number(which)}, {"why", text_of(why)}});
    }
}

part_answer context_core::ask(resource_id which, const attribute_view& query) {
    check_open();
    found_values here = find_.on(directory())(which, query);
    if (here.id == resource_id::none && here.context == not_looked_at_all)
        here = find_long_.on(directory())(query);
    if (here.id != resource_id::none) return {std::move(here), 0};
    return find_elsewhere_.on(directory())(which, query);
}

std::pair<std::optional<found_resource>, std::uint32_t> context_core::find(resource_id which,
                                                                           attribute_list query) {
    const part_answer answer = ask(which, query);
    if (answer.found.id == resource_id::none) return {std::nullopt, answer.silent};
    return {filled(std::move(query), answer.found), answer.silent};
}

std::uint32_t context_core::start_search(const attribute_view& query) {
    check_open();
    const std::uint32_t before = searches_of_lost_;
    const std::uint32_t search = before + search_.on(directory())(id_, query).take();
    for (std::uint32_t last = last_search_;
         last < search && !last_search_.compare_exchange_weak(last, search);) {
    }
    return search;
}

std::optional<found_resource> context_core::next(std::uint32_t search, const attribute_list& query,
                                                 std::uint32_t& silent) {
    check_open();
    const std::uint32_t of_lost = searches_of_lost_;
    if (search <= of_lost)
        throw error(errc::disconnected, "the directory of this query is gone; start a new query");
    const next_answer answer = next_.on(directory())(id_, search - of_lost).take();
    silent = answer.silent;
    if (answer.over) return std::nullopt;
    return filled(query, answer.found);
}

void context_core::stop_search(std::uint32_t search) noexcept {
    const std::uint32_t of_lost = searches_of_lost_;
    if (closed_ || lost_ || search <= of_lost) return;
    try {
        stop_.on(directory()).post(id_, search - of_lost);
    } catch (const std::exception&) {
        // The search ends with this context's connection.
    }
}

std::shared_ptr<watch_state> context_core::watch(attribute_list query, watch_state::function what) {
    if (!what) throw error(errc::invalid, "watch() was given an empty function");
    check_open();
    std::shared_ptr<watch_state> state;
    {
        const std::lock_guard one(watches_lock_);
        const std::uint32_t number = ++last_watch_;
        state = std::make_shared<watch_state>(weak_from_this(), number, query, std::move(what));
        watches_.emplace(number, state);
    }
    try {
        watch_.on(directory())(id_, state->number(), query).take();
    } catch (...) {
        const std::lock_guard one(watches_lock_);
        watches_.erase(state->number());
        throw;
    }
    return state;
}

void context_core::unwatch(std::uint32_t number) noexcept {
    {
        const std::lock_guard one(watches_lock_);
        if (watches_.erase(number) == 0) return;
    }
    if (closed_ || lost_) return;
    try {
        unwatch_.on(directory()).post(id_, number);
    } catch (const std::exception&) {
        // The watch ends with this context's connection.
    }
}

void context_core::change_told(std::uint32_t watch, resource_change::kind what,
                               found_values which) {
    if (call_context::current().from() == directory()) change(watch, what, which);
}

void context_core::change(std::uint32_t watch, resource_change::kind what,
                          const found_values& which) {
    using kind = resource_change::kind;
    std::unordered_map<std::uint32_t, std::shared_ptr<watch_state>> whom;
    {
        const std::lock_guard one(watches_lock_);
        if (which.id == resource_id::none) {
            whom.swap(watches_);
        } else if (const auto at = watches_.find(watch); at != watches_.end()) {
            whom.insert(*at);
        }
    }
    if (which.id == resource_id::none) what = kind::ended;
    if (which.id != resource_id::none && what >= kind::ended) return;
    for (const auto& [number, state] : whom)
        state->note(on_.pool(), what, which);
}

}  // namespace amalgam::detail
