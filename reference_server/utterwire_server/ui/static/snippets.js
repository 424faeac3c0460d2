// What to copy: the same request from somebody's own code.

const quote = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/**
 * @param {{http: string, websocket: string, text: string, voice: string, isSecret: boolean}} about
 * @returns {{name: string, code: string}[]}
 */
export function snippets({ http, websocket, text, voice, isSecret }) {
  const request = JSON.stringify(voice ? { text, voice } : { text });
  const json = JSON.stringify;
  const field = "'Authorization: Bearer TOKEN'";
  const flag = (name) => (isSecret ? ` ${name}${field}` : "");
  const headers = isSecret ? `, headers={"Authorization": "Bearer TOKEN"}` : "";
  return [
    {
      name: "Python client",
      code: `# pip install 'utterwire[client]'
import asyncio

from utterwire_client import Audio, connect


async def main() -> None:
    async with connect(${json(websocket)}${headers}) as session:
        async for event in session.synthesize(${json(text)}${voice ? `, voice=${json(voice)}` : ""}):
            if isinstance(event, Audio):
                print(len(event.data), "bytes of PCM")


asyncio.run(main())
`,
    },
    {
      name: "Shell",
      code: `utterwire say ${quote(text)} --url ${websocket}${flag("--header ")}${voice ? ` --voice ${quote(voice)}` : ""} -o hello.wav

# Or without the client: 16-bit mono PCM at 24,000 Hz
curl -sS${flag("-H ")} ${http}/invocations -d ${quote(request)} -o hello.pcm
`,
    },
    {
      name: "websocat",
      code: `# Messages and audio, one behind the other
printf '%s\\n' ${quote(request)} '{"type": "close"}' |
  websocat -n${flag("-H=")} ${websocket}/invocations-bidirectional-stream > hello.bin
`,
    },
    {
      name: "AWS SDK",
      code: `# pip install 'aws-sdk-sagemaker-runtime-http2[awscrt]', Python 3.12; for a SageMaker endpoint NAME
import asyncio
import json

from aws_sdk_sagemaker_runtime_http2 import models
from aws_sdk_sagemaker_runtime_http2.client import AsyncSageMakerRuntimeHTTP2Client
from aws_sdk_sagemaker_runtime_http2.config import AsyncSageMakerRuntimeHTTP2Config
from smithy_http.aio.crt import AWSCRTHTTPClient

REQUEST = json.dumps(${request}).encode()


async def main() -> None:
    config = await AsyncSageMakerRuntimeHTTP2Config.resolve(
        endpoint_uri="https://runtime.sagemaker.us-east-1.amazonaws.com:8443",
        region="us-east-1",
        transport=AWSCRTHTTPClient(),
    )
    async with AsyncSageMakerRuntimeHTTP2Client(config=config) as client:
        stream = await client.invoke_endpoint_with_bidirectional_stream(
            models.InvokeEndpointWithBidirectionalStreamInput(endpoint_name="NAME")
        )
        for message in (REQUEST, b'{"type": "close"}'):
            part = models.RequestPayloadPart(bytes_=message, data_type="UTF8")
            await stream.input_stream.send(models.RequestStreamEventPayloadPart(value=part))
        _, output = await stream.await_output()
        # Keep the sending side open until \`session_closed\`.
        while (event := await output.receive()) is not None:
            print(event.value.bytes_[:60])
            if b'"session_closed"' in event.value.bytes_[:200]:
                await stream.input_stream.close()


asyncio.run(main())
`,
    },
  ];
}
