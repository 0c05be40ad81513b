#include <utility>

#include <amalgam/fabric/loop.hpp>

#include "fabric/transports/loop/virtual_hub.hpp"

namespace amalgam {

loop_network::loop_network(const loop_options& options)
    : hub_(std::make_shared<detail::virtual_hub>(options)) {}

loop_network::~loop_network() {
    hub_->tell = nullptr;
}

std::unique_ptr<amalgam::port> loop_network::port(std::string_view name,
                                                  const port_options& options) {
    return hub_->port(name, options);
}

void loop_network::kill(std::string_view name) {
    hub_->kill(name);
}

std::unique_ptr<amalgam::port> loop_network::restart(std::string_view name,
                                                     const port_options& options) {
    hub_->kill(name);
    return hub_->port(name, options);
}

void loop_network::identify(std::string_view name, identity as) {
    hub_->identify(name, std::move(as));
}

std::shared_ptr<broadcast_medium> loop_network::broadcast(std::string_view name) {
    return hub_->broadcast(name);
}

void loop_network::delay(clock::duration least, clock::duration most) {
    hub_->least_delay = least;
    hub_->most_delay = most;
}

void loop_network::processing(std::string_view name, clock::duration each) {
    hub_->processing(name, each);
}

void loop_network::drop(double probability) {
    hub_->drop = probability;
}

void loop_network::reorder(bool by_chance) {
    hub_->reorder = by_chance;
}

void loop_network::cut(std::string_view name) {
    hub_->cut(name);
}

void loop_network::heal(std::string_view name) {
    hub_->heal(name);
}

void loop_network::cut(std::string_view from, std::string_view to) {
    hub_->cut(from, to);
}

void loop_network::heal(std::string_view from, std::string_view to) {
    hub_->heal(from, to);
}

void loop_network::fail_operation(std::uint64_t n, loop_fault fault) {
    hub_->faulty_operation = n == 0 ? 0 : hub_->operations + n;
    hub_->fault = fault;
}

std::uint64_t loop_network::operations() const noexcept {
    return hub_->operations;
}

void loop_network::run_until_idle() {
    hub_->run_until_idle();
}

void loop_network::run_for(clock::duration how_long) {
    hub_->run_until(hub_->time().now() + how_long);
}

clock::time_point loop_network::now() const noexcept {
    return hub_->time().now();
}

const clock& loop_network::time() const noexcept {
    return hub_->time();
}

std::size_t loop_network::open_operations() const noexcept {
    return hub_->open_operations();
}

void loop_network::on_event(std::function<void(const loop_event&)> tell) {
    hub_->tell = std::move(tell);
}

}  // namespace amalgam
