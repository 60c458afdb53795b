"""A headless Chromium driven over the WebDriver protocol, with the standard library alone."""

import base64
import json
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

KEYS = {'Enter': '\ue007', 'Escape': '\ue00c', 'Left': '\ue012', 'Up': '\ue013', 'Right': '\ue014', 'Down': '\ue015',
        'Home': '\ue011', 'End': '\ue010', 'PageDown': '\ue00f', 'PageUp': '\ue00e', 'Tab': '\ue004', 'Control': '\ue009'}


def programs():
    """Paths of Chromium and its driver, or None where one is missing."""
    chromium = next(filter(None, map(shutil.which, ['chromium', 'chromium-browser', 'google-chrome'])), None)
    driver = shutil.which('chromedriver')
    return (chromium, driver) if chromium and driver else None


class Browser:
    """One browser with one window. Logs of the console and of the network are kept from the start."""

    def __init__(self, width=1440, height=1000, scale=1, mobile=False):
        chromium, driver = programs()
        with socket.socket() as probe:
            probe.bind(('127.0.0.1', 0))
            port = probe.getsockname()[1]
        self.address = f'http://127.0.0.1:{port}'
        self.profile = tempfile.TemporaryDirectory(prefix='regard-page-', ignore_cleanup_errors=True)
        self.process = subprocess.Popen([driver, f'--port={port}'], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.session = None
        try:
            self._wait_for_driver()
            arguments = ['--headless=new', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--lang=en-US',
                         f'--user-data-dir={self.profile.name}', f'--window-size={width},{height}',
                         f'--force-device-scale-factor={scale}']
            options = {'binary': chromium, 'args': arguments}
            answer = self._call('POST', '/session', {'capabilities': {'alwaysMatch': {
                'browserName': 'chrome', 'goog:chromeOptions': options,
                'goog:loggingPrefs': {'browser': 'ALL', 'performance': 'ALL'}}}})
            self.session = '/session/' + answer['sessionId']
            self.emulate(width, height, scale, mobile)
        except BaseException:
            self.close()
            raise

    def _wait_for_driver(self):
        for _ in range(100):
            try:
                self._call('GET', '/status')
                return
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.1)
        raise RuntimeError('chromedriver did not start')

    def _call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data, {'Content-Type': 'application/json'}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return json.load(answer)['value']
        except urllib.error.HTTPError as error:
            value = json.load(error)['value']
            raise RuntimeError(f"{value['error']}: {value['message']}") from None

    def call(self, method, path, body=None):
        return self._call(method, self.session + path, body)

    def devtools(self, command, **parameters):
        return self.call('POST', '/goog/cdp/execute', {'cmd': command, 'params': parameters})

    def emulate(self, width, height, scale=1, mobile=False):
        self.devtools('Emulation.setDeviceMetricsOverride', width=width, height=height, deviceScaleFactor=scale, mobile=mobile)

    def prefer(self, **features):
        """prefer(prefers_color_scheme='dark')"""
        self.devtools('Emulation.setEmulatedMedia',
                      features=[{'name': name.replace('_', '-'), 'value': value} for name, value in features.items()])

    def open(self, address):
        self.call('POST', '/url', {'url': address})

    def run(self, script, *arguments):
        return self.call('POST', '/execute/sync', {'script': script, 'args': list(arguments)})

    def run_async(self, script, *arguments):
        """The script calls its last argument with the result."""
        return self.call('POST', '/execute/async', {'script': script, 'args': list(arguments)})

    def press(self, *keys):
        actions = []
        for key in keys:
            held = key.split('+')[:-1] if len(key) > 1 else []
            last = key.split('+')[-1] if len(key) > 1 else key
            actions += [{'type': 'keyDown', 'value': KEYS[name]} for name in held]
            value = KEYS.get(last, last)
            actions += [{'type': 'keyDown', 'value': value}, {'type': 'keyUp', 'value': value}]
            actions += [{'type': 'keyUp', 'value': KEYS[name]} for name in reversed(held)]
        self.call('POST', '/actions', {'actions': [{'type': 'key', 'id': 'keyboard', 'actions': actions}]})

    def point(self, x, y, click=False):
        """Moves the mouse to a place in the window, in CSS pixels."""
        actions = [{'type': 'pointerMove', 'duration': 0, 'x': round(x), 'y': round(y)}]
        if click:
            actions += [{'type': 'pointerDown', 'button': 0}, {'type': 'pointerUp', 'button': 0}]
        self.call('POST', '/actions', {'actions': [{'type': 'pointer', 'id': 'mouse', 'parameters': {'pointerType': 'mouse'},
                                                    'actions': actions}]})

    def screenshot(self, path, whole=False):
        data = self.devtools('Page.captureScreenshot', format='png', captureBeyondViewport=whole)['data'] if whole \
            else self.call('GET', '/screenshot')
        with open(path, 'wb') as file:
            file.write(base64.b64decode(data))

    def console(self):
        """Entries of the console since the last call: errors, warnings, broken content policy."""
        return self.call('POST', '/se/log', {'type': 'browser'})

    def requests(self):
        """Addresses asked for since the last call, as the network log saw them."""
        entries = self.call('POST', '/se/log', {'type': 'performance'})
        messages = [json.loads(entry['message'])['message'] for entry in entries]
        return [message['params']['request']['url'] for message in messages
                if message['method'] == 'Network.requestWillBeSent']

    def close(self):
        try:
            if self.session:
                self._call('DELETE', self.session)
        except (RuntimeError, OSError):
            pass
        self.process.terminate()
        self.process.wait(timeout=20)
        self.profile.cleanup()
