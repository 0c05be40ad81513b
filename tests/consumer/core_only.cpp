#include <iostream>

#include <amalgam/core.hpp>

int main() {
    amalgam::uri u = amalgam::uri::parse("tcp://[0:0::1]:7000");
    std::cout << to_string(u) << '\n';
    return to_string(u) == "tcp://[::1]:7000" ? 0 : 1;
}
