#include <exception>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include <amalgam/rpc/detail/call.hpp>
#include <amalgam/rpc/detail/one_way.hpp>
#include <amalgam/rpc/extension/early_end.hpp>
#include <amalgam/rpc/extension/inside.hpp>
#include <amalgam/rpc/extension/mail.hpp>
#include <amalgam/rpc/extension/origin.hpp>
#include <amalgam/tasks/parking.hpp>

#include "rpc/core/core.hpp"

namespace amalgam::detail {

peer self_of(const engine_core& core) noexcept {
    return core.self();
}
std::uint64_t home_of(const engine_core& core) noexcept {
    return core.home();
}
std::size_t port_count(const engine_core& core) noexcept {
    return core.port_addresses().size();
}
const std::string& port_address(const engine_core& core, std::size_t port) noexcept {
    return core.port_addresses()[port];
}
bool binds_keys(engine_core& core, std::size_t port) noexcept {
    return core.binds_keys(port);
}
bool has_key(const engine_core& core, const key_fingerprint& key) {
    return core.has_key(key);
}
remote_key key_for(engine_core& core, const peer& holder, std::size_t port,
                   const remote_key& key) noexcept {
    return core.exposures().key_for(holder, port, key);
}
std::vector<remote_key> keys_at_home(engine_core& core, const remote_key& home) noexcept {
    return core.exposures().keys_at_home(home);
}
bool is_lost(const engine_core& core, const peer& who) noexcept {
    return core.is_lost(who);
}
result<peer> find_peer(engine_core& core, std::string_view address) {
    try {
        return core.lookup(address);
    } catch (const error& why) {
        return failure{why.code(), why.what()};
    }
}
bool knows_routes(const engine_core& core) noexcept {
    return core.knows_routes();
}
clock::time_point now_of(const engine_core& core) noexcept {
    return core.now();
}
pool& pool_of(engine_core& core) {
    return core.streams().find({});
}
void check_may_wait(const engine_core& core) {
    core.check_may_wait();
}
void check_runs(const engine_core& core) {
    core.check_runs();
}
bool is_of_parent(const engine_core& core) noexcept {
    return core.is_of_parent();
}

const remote_procedure& intern(engine_core& core, std::string_view name, std::string signature) {
    return core.procedures().intern(name, std::move(signature));
}
const archive_context& context_of(const origin* between) noexcept {
    static const archive_context none;
    if (between == nullptr) return none;
    if (between->context != nullptr && *between->context) return *between->context;
    return between->here == nullptr ? none : between->here->archive_context();
}
encoding encoding_of(const engine_core& core) noexcept {
    return core.values_as();
}
peer look_up(engine_core& core, std::string_view address) {
    return core.lookup(address).value();
}

void define_first(engine_core& core, std::string_view first, std::string_view what,
                  const std::function<void()>& define) {
    std::exception_ptr failed;
    try {
        return define();
    } catch (const error& why) {
        if (why.code() != errc::invalid) throw;
        failed = std::current_exception();
    }
    bool is_taken = false;
    core.on_stream([&] { is_taken = core.server().procedures().find(first) != nullptr; });
    if (!is_taken) std::rethrow_exception(failed);
    throw error(errc::invalid, fmt::format("this engine already has {}, expected at most one per "
                                           "engine: use that one, or create another engine",
                                           what));
}

void accept_mail(engine_core& core, std::shared_ptr<mail_sink> sink) {
    core.on_stream([&] { core.accept_mail(std::move(sink)); });
}

void refuse_mail(engine_core& core, const mail_sink* sink) noexcept {
    auto refuse = [&core, sink] { core.refuse_mail(sink); };
    (void)core.run_now_or_later(refuse);  // Out of memory: it stays until the engine ends.
}

void end_early(engine_core& core, std::shared_ptr<void> keeps) noexcept {
    if (!core.may_hop()) {
        auto end = [&core, kept = std::move(keeps)]() mutable {
            core.end_early();
            kept.reset();
        };
        if (core.run_later(end)) return;
    }
    core.end_early();  // Also where there is no memory for that.
}

namespace {

/// A block belongs to its port's thread while the port lives.
struct block_holder {
    explicit block_holder(engine_core& where) noexcept : alive(where), core(where) {}
    block_holder(const block_holder&) = delete;
    ~block_holder() {
        const cancel_later it_must_not_throw;
        auto release = [gone = std::move(block)]() mutable { gone = shared_block(); };
        // Once the engine has ended, and with it the port, the block is an ordinary value.
        (void)core.run_now_or_later(release);
    }

    core_reference alive;
    engine_core& core;
    shared_block block;
};

}  // namespace

port_memory allocate_port_memory(engine_core& core, std::size_t bytes) {
    const auto holder = std::make_shared<block_holder>(core);
    core.on_stream([&] { holder->block = core.allocate(bytes); });
    return {holder, holder->block.bytes()};
}

}  // namespace amalgam::detail
