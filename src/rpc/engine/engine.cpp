#include <cstdint>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include <amalgam/core/detail/printable.hpp>
#include <amalgam/rpc/engine.hpp>
#include <amalgam/tasks/extension/local.hpp>

#include "rpc/core/core.hpp"
#include "rpc/limits.hpp"
#include "rpc/monitoring/describe.hpp"
#include "rpc/monitoring/shown_numbers.hpp"
#include "rpc/serve/raw_handler.hpp"
#include "rpc/wire/wire.hpp"

namespace amalgam {

namespace {

/// The name, if users may define it.
std::string_view checked(const detail::procedure_name& name) {
    if (name.by_library() || !is_library_procedure(name.text())) return name.text();
    throw error(errc::denied,
                fmt::format("\"{}\" is reserved, as are all names that begin with \"amalgam.\": "
                            "choose another; example: \"my.{}\"",
                            detail::printable_name(name.text()),
                            detail::printable_name(name.text().substr(std::strlen("amalgam.")))));
}

}  // namespace

engine::engine(endpoints where, engine_options options)
    : core_(new detail::engine_core(*this, std::move(where), std::move(options))) {
    try {
        core_->on_stream([this] { define_own(); });  // In one hop.
        detail::show_numbers_of(*core_);
    } catch (...) {
        end();
        throw;
    }
}

/// What every engine answers.
void engine::define_own() {
    // Called by `amalgam ping`.
    define(detail::library_name{"amalgam.ping"}, [](std::uint64_t number) { return number; },
           {.run = handler::inline_});
    detail::engine_core* const core = core_;
    define(detail::library_name{detail::introduction::procedure},
           [core](const detail::introduction& asked) {
               return core->introduced(call_context::current().from(), asked);
           },
           {.run = handler::inline_});
    define(detail::library_name{"amalgam.part"},
           [core](std::uint32_t number) { core->part(call_context::current().from(), number); },
           {.run = handler::inline_});
    define(detail::library_name{"amalgam.stop"}, [core](responder<void> answer) {
        if (!core->may_be_stopped_by_peers()) {
            return answer.fail(errc::denied,
                               "this engine is not stopped by its peers; to allow "
                               "it, set engine_options::remote_stop there");
        }
        answer();
        core->stop_soon();
    });
    detail::define_descriptions(*this);
    detail::define_value_streams(*this);
}

engine::engine(endpoints where) : engine(std::move(where), engine_options()) {}
engine::engine(const engine_config& config) : engine(config.endpoints, config.options) {}

engine::~engine() {
    end();
}

void engine::end() {
    detail::hide_numbers_of(*core_);
    core_->ended_early() ? core_->drop_reference() : core_->destroy();
}

std::string engine::address() const {
    return core_->addresses().empty() ? std::string() : core_->addresses().front();
}

std::vector<std::string> engine::addresses() const {
    return core_->addresses();
}

peer engine::lookup(std::string_view address) {
    return core_->lookup(address).value();
}

result<peer> engine::try_lookup(std::string_view address) {
    try {
        return core_->lookup(address);
    } catch (const error& why) {
        return failure{why.code(), why.what()};
    }
}

peer engine::lookup(std::span<const std::string> addresses) {
    core_->check_may_wait();
    return start_lookup(addresses).get();
}

peer engine::lookup(std::initializer_list<std::string_view> addresses) {
    return lookup(std::vector<std::string>(addresses.begin(), addresses.end()));
}

result<peer> engine::try_lookup(std::span<const std::string> addresses) {
    try {
        return lookup(addresses);
    } catch (const error& why) {
        return failure{why.code(), why.what()};
    }
}

future<peer> engine::start_lookup(std::span<const std::string> addresses) {
    return core_->start_lookup({addresses.begin(), addresses.end()});
}

std::vector<peer_way> engine::ways(const peer& who) {
    std::vector<peer_way> all;
    core_->on_stream([&] { all = core_->ways(who); });
    return all;
}

void engine::define_raw(detail::procedure_name name, std::string signature,
                        std::function<raw_values(const raw_call&)> function,
                        procedure_options options) {
    if (!function) throw error(errc::invalid, "define_raw() was given an empty function");
    detail::check_raw_signature(name.text(), signature);
    const detail::answer_form form = detail::raw_form(signature);
    add_handler(name, std::move(signature), options, form,
                std::make_unique<detail::raw_handler>(std::move(function)));
}

void engine::define_any(std::function<raw_values(const raw_call&)> function,
                        procedure_options options) {
    if (!function) throw error(errc::invalid, "define_any() was given an empty function");
    auto streams = core_->streams().place("whatever nobody defined", options);
    auto handler = std::make_unique<detail::raw_handler>(std::move(function));
    core_->on_stream(
        [&] { core_->server().serve_unknown(std::move(handler), options, std::move(streams)); });
}

bool engine::undefine_any() {
    bool known = false;
    try {
        core_->on_stream([&] { known = core_->server().forget_unknown(); });
    } catch (const error& why) {
        if (why.code() != errc::closed) throw;
    }
    core_->streams().reap();
    return known;
}

raw_values engine::call_raw(const peer& there, std::string_view name, std::string signature,
                            const raw_values& arguments, const raw_call_options& how) {
    return detail::call_raw(*core_, there, name, std::move(signature), arguments, how);
}

void engine::move_procedure(std::string_view name, std::string_view to_pool,
                            std::uint16_t provider) {
    (void)checked(name);
    procedure_options where{.in_pool = to_pool};
    if (to_pool.empty()) where.in = &pool();
    const std::shared_ptr<detail::stream_group> group = core_->streams().place(name, where);
    core_->on_stream([&] {
        detail::served_procedure* const what = core_->server().procedures().find(name, provider);
        if (what == nullptr) {
            throw error(errc::not_found,
                        fmt::format("this engine serves no procedure \"{}\" for provider {}",
                                    detail::printable_name(name), provider));
        }
        what->options.run = handler::ult;
        what->options.in = where.in;
        what->streams = group;
    });
    core_->streams().reap();
}

bool engine::undefine(detail::procedure_name given, std::uint16_t provider) {
    const std::string_view name = checked(given);
    bool known = false;
    try {
        core_->on_stream([&] { known = core_->server().procedures().remove(name, provider); });
    } catch (const error& why) {
        if (why.code() != errc::closed) throw;
        return false;  // A stopped engine serves nothing.
    }
    core_->streams().reap();
    return known;
}

void engine::add_handler(detail::procedure_name given, std::string signature,
                         const procedure_options& options, detail::answer_form form,
                         std::unique_ptr<detail::handler_base> handler) {
    const std::string_view name = checked(given);
    if (form == detail::answer_form::items && options.run == handler::inline_) {
        throw error(errc::invalid,
                    fmt::format("\"{}\" returns a stream, so its handler may wait, which an inline "
                                "handler cannot: do not set procedure_options::run",
                                name));
    }
    if (detail::takes_stream(signature) && options.run == handler::inline_) {
        throw error(errc::invalid,
                    fmt::format("\"{}\" reads a stream, so its handler may wait, which an inline "
                                "handler cannot: do not set procedure_options::run",
                                name));
    }
    auto fresh = std::make_unique<detail::served_procedure>();
    fresh->id = detail::procedure_id(name, signature);
    fresh->name = name;
    fresh->library = is_library_procedure(name);
    fresh->streams_values = detail::streams(form) || detail::takes_stream(signature);
    fresh->signature = std::move(signature);
    fresh->options = options;
    fresh->streams = core_->streams().place(name, fresh->options);
    fresh->about = options.about.substr(0, detail::limits::max_about_bytes);
    fresh->options.about = {};  // It borrows.
    fresh->form = form;
    fresh->run = std::move(handler);
    try {
        core_->on_stream([&] { core_->server().add(std::move(fresh)); });
    } catch (...) {
        fresh.reset();  // Its streams are idle.
        core_->streams().reap();
        throw;
    }
    core_->streams().reap();
}

const detail::remote_procedure& engine::intern(std::string_view name, std::string signature) {
    return core_->procedures().intern(name, std::move(signature));
}

execution_stream& engine::stream(std::size_t index) {
    return core_->streams().at(index);
}
std::size_t engine::stream_count() const noexcept {
    return core_->streams().count();
}
amalgam::pool& engine::pool(std::string_view name) {
    return core_->streams().find(name);
}
void engine::add_pool(const pool_options& how, unsigned streams) {
    core_->check_runs();
    core_->streams().add_pool(how, streams);
}
bool engine::remove_pool(std::string_view name) {
    return core_->streams().remove_pool(name);
}
std::string engine::add_stream(const stream_options& how) {
    core_->check_runs();
    return core_->streams().add_stream(how);
}
bool engine::remove_stream(std::string_view name) {
    core_->check_runs();
    core_->check_may_wait();
    return core_->streams().remove_stream(name).has_value();
}
void engine::set_progress(progress_options how) {
    core_->streams().set_progress(how);
}
std::string engine::configuration() const {
    return to_json(core_->configuration());
}
std::size_t engine::progress(std::size_t most) {
    return core_->progress(most);
}
int engine::wait_handle() const {
    core_->check_driven_by_caller("wait_handle()");
    return core_->stream().wait_handle();
}
std::optional<clock::time_point> engine::next_timer() const noexcept {
    return core_->stream().next_timer();
}
peer_lost_subscription engine::on_peer_lost(std::function<void(const peer&, status)> function) {
    if (!function) throw error(errc::invalid, "on_peer_lost() was given an empty function");
    return core_->listeners().add(std::move(function));
}
engine::stays_open::stays_open(detail::engine_core& core) : core_(core) {
    if (core_.begin_handing_over()) return;
    core_.end_handing_over();
    core_.check_runs();
}
engine::stays_open::~stays_open() {
    core_.end_handing_over();
}
void engine::check_runs() const {
    core_->check_runs();
}
void engine::check_may_wait() const {
    core_->check_may_wait();
}
clock::time_point engine::now() const noexcept {
    return core_->now();
}
counter_set& engine::counters() noexcept {
    return core_->counters();
}
void engine::stop() {
    core_->stop();
}
void engine::wait_until_stopped() {
    core_->wait_for_stop();
}
bool engine::stopped() const noexcept {
    return core_->is_stopped();
}
std::uint64_t engine::on_stopping(std::function<void()> function) {
    return core_->callbacks().add(detail::stop_phase::stopping, std::move(function));
}
std::uint64_t engine::on_stopped(std::function<void()> function) {
    return core_->callbacks().add(detail::stop_phase::stopped, std::move(function));
}
bool engine::drop_stop_function(std::uint64_t number) noexcept {
    return core_->callbacks().remove(number);
}
void engine::stop_remote(const peer& there) {
    try {
        procedure<void()>("amalgam.stop").on(there)();
    } catch (const error& why) {
        if (why.code().handler_code() != errc::denied) throw;
        throw error(errc::denied, why.what());
    }
}

std::string peer::address() const {
    if (owner_ == nullptr) return {};
    std::string address;
    owner_->on_stream([&] { address = owner_->peer_addresses().address_of(*this); });
    return address;
}

identity peer::who() const {
    if (owner_ == nullptr) return {};
    identity who;
    owner_->on_stream([&] { who = owner_->who(*this); });
    return who;
}

identity call_context::who() const {
    return from_.who();
}

std::string peer::explain() const {
    if (owner_ == nullptr) return "an empty peer: no address was looked up";
    std::string text;
    owner_->on_stream([&] { text = owner_->explain(*this); });
    return text;
}

call_context* call_context::try_current() noexcept {
    return static_cast<call_context*>(detail::task_local());
}

std::optional<std::string_view> call_context::metadata(std::string_view key) const noexcept {
    return detail::find_metadata(extras_wire_, key);
}

call_context& call_context::current() {
    call_context* const here = try_current();
    if (here == nullptr) {
        throw error(errc::invalid,
                    "no call is being served here: use call_context::current() only in a running "
                    "handler, not in a ULT that it spawned");
    }
    return *here;
}

}  // namespace amalgam
