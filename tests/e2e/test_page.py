"""The admin page in a headless Chromium: what it shows of a running deltad, its playground, its key, keyboard and small screens. A picture
of it is left in the build's artefacts (page.png)."""
import json
import platform
import shutil
import time

import pytest
from selenium import webdriver

from conftest import BUILD, GOLDEN, TINY, free_port, running

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
# Where docker/install-deps.sh installs both their lack is a fault; Ubuntu has no package of them that runs without snap.
if not (CHROMIUM and DRIVER) and platform.freedesktop_os_release()["ID"] != "debian":
    pytest.skip("no chromium and chromedriver", allow_module_level=True)
KEY = "page-s3cret"


@pytest.fixture(scope="module")
def browser():
    assert CHROMIUM and DRIVER, "no chromium and chromedriver: docker/install-deps.sh installs them"
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1200,1000"):
        options.add_argument(argument)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder, admin = tmp_path_factory.mktemp("page"), free_port()
    config = folder / "config.yaml"
    config.write_text(json.dumps({"base": str(TINY), "variants": {"row": str(GOLDEN / "variants/llama/llama-row-1.delta.safetensors")},
                                  "server": {"admin": {"listen": admin, "api_keys": [KEY]}}}))
    with running(["--config", config], folder) as server:
        yield server, f"http://127.0.0.1:{admin}/"


def wait(browser, what, seconds=20):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := browser.execute_script("return " + what):
            return found
        time.sleep(0.05)
    raise AssertionError(f"{what}: not within {seconds} s; the page says: {browser.find_element('tag name', 'body').text}")


def open_with_key(browser, url):
    browser.get(url)
    wait(browser, "!document.getElementById('key-form').hidden")
    browser.find_element("id", "key").send_keys(KEY + "\n")
    wait(browser, "document.getElementById('status').textContent === 'serving'")


def test_it_asks_for_the_key_and_shows_what_is_there(browser, served):
    server, url = served
    browser.get(url)
    wait(browser, "document.getElementById('status').className === 'error'")
    assert "key" in browser.find_element("id", "status").text
    open_with_key(browser, url)
    rows = wait(browser, "[...document.querySelectorAll('#variants tr')].map(r => r.innerText)")
    assert len(rows) == 1 and "row" in rows[0] and "registered" in rows[0]
    assert server.post("/v1/completions", {"model": "row", "prompt": "a", "max_tokens": 4})[0] == 200
    wait(browser, "document.querySelector('#variants tr').innerText.includes('resident')")
    assert "Memory for variants" in browser.find_element("id", "cache").text
    assert len(browser.find_elements("css selector", "#figures dd")) == 9
    errors = [e for e in browser.get_log("browser") if e["level"] == "SEVERE" and "401" not in e["message"]]
    assert not errors, errors


def test_the_playground_answers_side_by_side(browser, served):
    server, url = served
    open_with_key(browser, url)
    wait(browser, "document.querySelectorAll('#models input').length === 2")
    browser.execute_script("for (const box of document.querySelectorAll('#models input')) box.checked = true")
    browser.find_element("id", "prompt").send_keys("hello")
    tokens = browser.find_element("id", "tokens")
    tokens.clear()
    tokens.send_keys("8")
    browser.find_element("id", "send").click()
    wait(browser, "[...document.querySelectorAll('#answers article p')].filter(p => /^[1-8] tokens; first/.test(p.textContent)).length === 2")
    for article in browser.find_elements("css selector", "#answers article"):
        status, whole = server.post("/v1/chat/completions", {"model": article.get_attribute("data-model"), "temperature": 0, "max_tokens": 8,
                                                             "messages": [{"role": "user", "content": "hello"}]})
        assert status == 200
        text = article.find_element("tag name", "pre").get_attribute("textContent")
        assert text == whole["choices"][0]["message"]["content"]
    (BUILD / "artefacts").mkdir(exist_ok=True)
    assert browser.save_screenshot(str(BUILD / "artefacts" / "page.png"))


def test_it_fits_a_small_screen_and_goes_by_keyboard(browser, served):
    _, url = served
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True})
    try:
        open_with_key(browser, url)
        wait(browser, "document.querySelectorAll('#models input').length === 2")
        assert browser.execute_script("return document.documentElement.scrollWidth") <= 360
        reached = []
        for _ in range(20):
            browser.switch_to.active_element.send_keys("\ue004")  # Tab
            reached.append(browser.execute_script("return document.activeElement.id || document.activeElement.className"))
        assert {"skip", "prompt", "tokens", "send"} <= set(reached), reached
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_pages_of_other_sites_are_refused(served):
    server, url = served
    for origin, want in (("https://elsewhere", 403), (url.rstrip("/"), 200)):
        status, _, text = server.request("GET", "/admin/v1/state", url=url.rstrip("/"), headers={"Origin": origin, "Authorization": f"Bearer {KEY}"})
        assert status == want, text
