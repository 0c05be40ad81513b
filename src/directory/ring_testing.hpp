#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/directory/context.hpp>
#include <amalgam/directory/directory_server.hpp>
#include <amalgam/fabric/loop.hpp>

namespace amalgam {

using namespace std::chrono_literals;

/// A medium that can be made to fail.
class breakable_medium final : public broadcast_medium {
public:
    explicit breakable_medium(std::shared_ptr<broadcast_medium> on) : on_(std::move(on)) {}

    void listen(receiver function) override { on_->listen(std::move(function)); }
    bool send(const_bytes packet) noexcept override {
        return !refuses && (loses || on_->send(packet));
    }
    std::size_t max_bytes() const noexcept override { return on_->max_bytes(); }

    bool loses = false;    ///< What is sent.
    bool refuses = false;  ///< To send.

private:
    std::shared_ptr<broadcast_medium> on_;
};

/// Hosts on a network in virtual time: each has a directory server and a context.
class hosts {
public:
    explicit hosts(std::size_t count, std::string secret = {}) : hosts(count, {}, secret) {}
    /// On a medium they find each other by it; without one they all know host0.
    struct on_medium {
        search_way search = search_way::broadcast;
    };
    hosts(std::size_t count, std::optional<on_medium> medium, std::string secret = {})
        : secret_(std::move(secret)), medium_(medium) {
        net.delay(50us, 150us);
        for (std::size_t i = 0; i < count; ++i)
            add();
    }

    void add() {
        const std::string name = "host" + std::to_string(all_.size());
        auto one = std::make_unique<host>();
        one->secret = secret_;
        one->serves = std::make_unique<engine>(net.port(name));
        one->uses = std::make_unique<engine>(net.port("user" + name));
        directory_options options;
        options.ring.seed = all_.size() + 1;
        options.secret = secret_;
        if (medium_) {
            one->medium = std::make_shared<breakable_medium>(net.broadcast(name));
            options.ring.medium = one->medium;
            options.ring.search = medium_->search;
        } else if (!all_.empty()) {
            options.ring.others = {"loop://host0"};
        }
        one->directory = std::make_unique<directory_server>(*one->serves, options);
        all_.push_back(std::move(one));
    }
    template <typename Work>
    auto in(std::size_t which, Work work) {
        host& where = *all_[which];
        auto done = where.uses->spawn([&where, work = std::move(work)]() mutable {
            if (!where.here) {
                where.here = std::make_unique<context>(
                    *where.uses,
                    context_options{.directory = where.serves->address(), .secret = where.secret});
            }
            return work(*where.here);
        });
        for (int i = 0; i < 1000 && !done.ready(); ++i)
            net.run_for(10ms);
        EXPECT_TRUE(done.ready());
        return done.get();
    }
    std::optional<found_resource> find(std::size_t from, const attribute_list& query) {
        return in(from, [&](context& here) { return here.find(query); });
    }
    resource_id add_resource(std::size_t at, const attribute_list& what) {
        return in(at, [&](context& here) { return here.add(what).release(); });
    }
    /// Opens a context there, and does not wait for that.
    future<bool> begin_to_use(std::size_t which) {
        host& where = *all_[which];
        return where.uses->spawn([&where] {
            try {
                const context brief(*where.uses, {.directory = where.serves->address()});
                return true;
            } catch (const error&) {
                return false;
            }
        });
    }
    std::size_t contexts_at(std::size_t which) const { return all_[which]->directory->contexts(); }
    std::size_t known_by(std::size_t which) const { return all_[which]->directory->servers(); }
    breakable_medium& medium_of(std::size_t which) { return *all_[which]->medium; }
    std::uint64_t counted(std::size_t which, const char* name) {
        return all_[which]->serves->counters().get(name).value();
    }
    std::size_t size() const { return all_.size(); }

    loop_network net{{.seed = 7}};

private:
    struct host {
        std::unique_ptr<engine> serves, uses;
        std::shared_ptr<breakable_medium> medium;
        std::unique_ptr<directory_server> directory;
        std::unique_ptr<context> here;
        std::string secret;
    };
    std::string secret_;
    std::optional<on_medium> medium_;
    std::vector<std::unique_ptr<host>> all_;
};

}  // namespace amalgam
