#include <cstdint>
#include <utility>

#include <amalgam/rpc/engine.hpp>
#include <amalgam/tasks/detail/local.hpp>

#include "rpc/engine_core.hpp"
#include "rpc/wire.hpp"

namespace amalgam {

engine::engine(endpoints where, engine_options options)
    : core_(new detail::engine_core(*this, std::move(where), std::move(options))) {
    try {
        // What `amalgam ping` calls: every engine answers it.
        define("amalgam.ping", [](std::uint64_t number) { return number; },
               {.run = handler::inline_});
    } catch (...) {
        end();
        throw;
    }
}

engine::~engine() {
    end();
}

void engine::end() {
    core_->stop();
    core_->drop_reference();
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

bool engine::undefine(std::string_view name, std::uint16_t provider) {
    bool known = false;
    core_->on_stream([&] { known = core_->serves().procedures().remove(name, provider); });
    return known;
}

void engine::add_handler(std::string_view name, std::string signature, procedure_options options,
                         std::unique_ptr<detail::handler_base> handler) {
    auto fresh = std::make_unique<detail::served_procedure>();
    fresh->id = detail::procedure_id(name, signature);
    fresh->name = name;
    fresh->signature = std::move(signature);
    fresh->options = options;
    fresh->run = std::move(handler);
    core_->on_stream([&] { core_->serves().procedures().add(std::move(fresh)); });
}

const detail::remote_procedure& engine::intern(std::string_view name, std::string signature) {
    return core_->intern(name, std::move(signature));
}

execution_stream& engine::stream(std::size_t index) {
    return core_->stream(index);
}
std::size_t engine::stream_count() const noexcept {
    return core_->stream_count();
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

std::string peer::address() const {
    if (owner_ == nullptr) return {};
    std::string address;
    owner_->on_stream([&] { address = owner_->address_of(*this); });
    return address;
}

call_context* call_context::try_current() noexcept {
    return static_cast<call_context*>(detail::task_local());
}

std::optional<std::string_view> call_context::metadata(std::string_view key) const noexcept {
    return detail::find_metadata(extras_, key);
}

call_context& call_context::current() {
    call_context* const here = try_current();
    if (here == nullptr) {
        throw error(errc::invalid,
                    "there is no call here: call_context::current() is for handlers, while they "
                    "run; a ULT that a handler spawned is none");
    }
    return *here;
}

}  // namespace amalgam
